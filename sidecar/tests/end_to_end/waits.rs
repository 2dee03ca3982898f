//! Output that waits for its readers.

use std::io::Write as _;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use wire::agent::attach_event::Event;
use wire::agent::{
    AttachEvent, AttachRequest, End, ExecRequest, ExecResult, ExecSummary, ListRequest, StdinChunk,
};

use crate::sandbox::{LIMIT, Sandbox, argv, grows_to, problem, shell, signed};

/// How many bytes of waiting output are kept.
const KEPT_BYTES: u64 = 4 << 20;
/// How long output waits for a reader that takes nothing.
const GIVEN_UP: Duration = Duration::from_secs(10);

async fn attach(sandbox: &Sandbox, exec_id: &str, stdout_offset: u64) -> tonic::Streaming<AttachEvent> {
    let request = AttachRequest { exec_id: exec_id.to_owned(), stdout_offset, stderr_offset: 0 };
    sandbox.client.clone().attach(signed(request)).await.unwrap().into_inner()
}

async fn begin(sandbox: &Sandbox, request: ExecRequest) -> String {
    let exec_id = request.exec_id.clone();
    sandbox.client.clone().start(signed(ExecRequest { output_waits: true, ..request })).await.unwrap();
    exec_id
}

/// The output of `seq`. Computed before there is a connection: a client that computes does not answer HTTP/2 pings.
fn numbers(count: u32) -> Vec<u8> {
    let mut all = Vec::new();
    (1..=count).for_each(|n| writeln!(all, "{n}").unwrap());
    all
}

/// Reads standard output until there are `until` bytes of it, or the result; fails on a gap.
async fn read(
    events: &mut tonic::Streaming<AttachEvent>,
    seen: &mut Vec<u8>,
    until: usize,
) -> Option<ExecResult> {
    while seen.len() < until {
        let came = timeout(LIMIT, events.message()).await.unwrap();
        match came.unwrap().unwrap().event.unwrap() {
            Event::Stdout(chunk) => {
                assert_eq!(chunk.offset, seen.len() as u64, "a gap");
                seen.extend_from_slice(&chunk.data);
            }
            Event::Stderr(chunk) => panic!("{chunk:?}"),
            Event::Result(result) => return Some(result),
        }
    }
    None
}

async fn summary(sandbox: &Sandbox, exec_id: &str) -> ExecSummary {
    let execs = sandbox.client.clone().list(signed(ListRequest {})).await.unwrap().into_inner().execs;
    execs.into_iter().find(|exec| exec.exec_id == exec_id).unwrap()
}

async fn written(sandbox: &Sandbox, exec_id: &str) -> u64 {
    summary(sandbox, exec_id).await.stdout_bytes
}

/// How much has been written once the count has stopped growing; on a slow machine it may be less.
async fn written_at_rest(sandbox: &Sandbox, exec_id: &str) -> u64 {
    let (mut before, mut same) = (0, 0);
    while same < 10 {
        sleep(Duration::from_millis(20)).await;
        let now = written(sandbox, exec_id).await;
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    before
}

#[tokio::test]
async fn a_reader_that_is_cut_off_again_and_again_loses_nothing_at_full_speed() {
    let expected = numbers(3_000_000);
    let sandbox = Sandbox::start().await;
    // Waiting output keeps its minimum, however little the request wants to keep.
    let request = ExecRequest { max_output_bytes: 1000, ..shell("seq 1 3000000; exit 6") };
    let exec_id = begin(&sandbox, request).await;
    let (mut seen, mut cuts) = (Vec::new(), 0);
    let result = loop {
        let mut events = attach(&sandbox, &exec_id, seen.len() as u64).await;
        let until = seen.len() + (1 << 20) + cuts * 12_345;
        if let Some(result) = read(&mut events, &mut seen, until).await {
            break result;
        }
        cuts += 1;
    };
    assert!(cuts > 5 && seen == expected, "{cuts} cuts, {} of {} bytes", seen.len(), expected.len());
    assert_eq!((result.end(), result.exit_code), (End::Exited, 6));
    assert_eq!(result.stdout.unwrap().total_bytes, expected.len() as u64);
}

/// Writes until its pipe is wide (`F`), waits for input (`?`), then until the pipe is narrow again (`N`).
const FLOODS: &str = "
import fcntl, os, time
size = lambda: fcntl.fcntl(1, fcntl.F_GETPIPE_SZ)
for _ in range(2):
    for _ in range(200):
        os.write(1, b'F' * 65536)
    while size() < 1 << 20:
        os.write(1, b'F' * 65536)
    os.write(1, b'?')
    input()
    while size() > 65536:
        time.sleep(0.01)
    os.write(1, b'N')
";

#[tokio::test]
async fn a_flood_has_a_wide_pipe_only_for_as_long_as_it_lasts_and_is_whole() {
    let sandbox = Sandbox::start().await;
    let exec_id = begin(&sandbox, ExecRequest { stdin_open: true, ..argv(&["python3", "-c", FLOODS]) }).await;
    let mut events = attach(&sandbox, &exec_id, 0).await;
    let mut seen = Vec::new();
    for asked in 0..2 {
        loop {
            let until = seen.len() + 1;
            assert!(read(&mut events, &mut seen, until).await.is_none(), "the command ended too early");
            if seen.last() == Some(&b'?') {
                break;
            }
        }
        let answer = StdinChunk { exec_id: exec_id.clone(), offset: asked, data: "\n".into(), eof: false };
        sandbox.client.clone().write_stdin(signed(answer)).await.unwrap();
    }
    let result = read(&mut events, &mut seen, usize::MAX).await.unwrap();
    let others = seen.iter().filter(|byte| **byte != b'F').count();
    assert!(others == 4 && seen.len() > 2 * 200 * 65_536, "{result:?}");
}

#[tokio::test]
async fn nobody_yet_and_a_slow_reader_are_waited_for() {
    let expected = numbers(1_000_000);
    let sandbox = Sandbox::start().await;
    let exec_id = begin(&sandbox, shell("seq 1 1000000")).await;
    grows_to(KEPT_BYTES, async || written(&sandbox, &exec_id).await).await;
    assert_eq!(written_at_rest(&sandbox, &exec_id).await, KEPT_BYTES, "the command did not wait");
    let mut events = attach(&sandbox, &exec_id, 0).await;
    let mut seen = Vec::new();
    read(&mut events, &mut seen, 100_000).await;
    assert!(written_at_rest(&sandbox, &exec_id).await < expected.len() as u64, "the command did not wait");
    let result = read(&mut events, &mut seen, usize::MAX).await.unwrap();
    assert!(seen == expected && result.exit_code == 0, "{} of {}", seen.len(), expected.len());
}

/// Run together, because both wait until a reader is given up.
#[tokio::test]
async fn readers_are_given_up() {
    tokio::join!(
        who_comes_back_too_late_is_told_what_he_has_missed(),
        a_reader_that_takes_nothing_counts_as_gone_and_costs_no_memory(),
    );
}

async fn who_comes_back_too_late_is_told_what_he_has_missed() {
    let expected = numbers(2_000_000);
    let sandbox = Sandbox::start().await;
    let exec_id = begin(&sandbox, shell("seq 1 2000000")).await;
    let mut events = attach(&sandbox, &exec_id, 0).await;
    let mut seen = Vec::new();
    read(&mut events, &mut seen, 1000).await;
    drop(events);
    let began = Instant::now();
    grows_to(expected.len() as u64, async || written(&sandbox, &exec_id).await).await;
    assert!(began.elapsed() >= GIVEN_UP, "{:?}", began.elapsed());
    let mut events = attach(&sandbox, &exec_id, seen.len() as u64).await;
    let Some(Event::Stdout(first)) = events.message().await.unwrap().unwrap().event else {
        panic!("no output")
    };
    assert_eq!(first.offset, expected.len() as u64 - KEPT_BYTES, "the gap is explicit");
    let start = usize::try_from(first.offset).unwrap();
    assert!(expected[start..].starts_with(&first.data));
}

async fn a_reader_that_takes_nothing_counts_as_gone_and_costs_no_memory() {
    let sandbox = Sandbox::start().await;
    let exec_id = begin(&sandbox, shell("head -c 100000000 /dev/zero")).await;
    let idle = attach(&sandbox, &exec_id, 0).await;
    let blocked = written_at_rest(&sandbox, &exec_id).await;
    assert!(blocked < 16 << 20, "{blocked}");
    grows_to(100_000_000, async || written(&sandbox, &exec_id).await).await;
    drop(idle);
    assert!(sandbox.peak_kib() < 48 << 10, "{} KiB", sandbox.peak_kib());
}

#[tokio::test]
async fn a_waiting_command_can_be_cancelled_and_its_end_waits_for_nobody() {
    let sandbox = Sandbox::start().await;
    let exec_id = begin(&sandbox, argv(&["yes"])).await;
    grows_to(KEPT_BYTES, async || written(&sandbox, &exec_id).await).await;
    let began = Instant::now();
    assert_eq!(sandbox.cancel(&exec_id).await.unwrap().end(), End::Cancelled);
    assert!(began.elapsed() < GIVEN_UP, "{:?}", began.elapsed());
}

#[tokio::test]
async fn of_an_end_that_comes_before_its_readers_nothing_is_lost() {
    // A little more than is kept.
    let expected = numbers(619_000);
    let sandbox = Sandbox::start().await;
    let exec_id = begin(&sandbox, argv(&["seq", "1", "619000"])).await;
    sandbox.until("pgrep -cx seq; true", "0\n").await;
    let mut seen = Vec::new();
    let result = read(&mut attach(&sandbox, &exec_id, 0).await, &mut seen, usize::MAX).await;
    assert_eq!(result.unwrap().exit_code, 0);
    assert!(seen == expected);
}

#[tokio::test]
async fn the_time_of_a_command_that_is_over_does_not_run_out() {
    let expected = numbers(619_000);
    let sandbox = Sandbox::start().await;
    // Retries with more time, for a machine on which the command does not end within its timeout.
    for timeout_ms in [1000, 4000, 16_000] {
        let exec_id = begin(&sandbox, ExecRequest { timeout_ms, ..argv(&["seq", "1", "619000"]) }).await;
        let passed = Instant::now() + Duration::from_millis(timeout_ms + 200);
        while Instant::now() < passed {
            // A reader that attaches again and again does not count as gone.
            drop(attach(&sandbox, &exec_id, 0).await);
            sleep(Duration::from_millis(200)).await;
        }
        if summary(&sandbox, &exec_id).await.running {
            let mut seen = Vec::new();
            let result = read(&mut attach(&sandbox, &exec_id, 0).await, &mut seen, usize::MAX).await;
            assert_eq!(result.unwrap().end(), End::Exited);
            assert!(seen == expected);
            return;
        }
    }
    panic!("the command timed out");
}

#[tokio::test]
async fn one_that_never_was_cannot_be_attached_to() {
    let sandbox = Sandbox::start().await;
    let request = AttachRequest { exec_id: "never-was".into(), ..Default::default() };
    let refused = sandbox.client.clone().attach(signed(request)).await.unwrap_err();
    assert_eq!(problem(&refused).code, wire::Code::ExecNotFound);
}
