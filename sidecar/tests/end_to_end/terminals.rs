//! Commands on a terminal.

use std::time::{Duration, Instant};

use wire::Code;
use wire::agent::attach_event::Event;
use wire::agent::{
    AttachEvent, AttachRequest, End, ExecRequest, ExecResult, ResizeRequest, SignalRequest, StdinChunk,
    TerminalSize,
};

use crate::sandbox::{LIMIT, Sandbox, argv, env, problem, shell, signed};

/// A daemon in a session of its own; the command continues once the daemon has it.
const DAEMON: &str =
    "setsid sleep 1000 & until pgrep -fx 'sleep 1000' > /dev/null; do :; done; echo last words";

/// A client at a terminal.
struct Seat<'a> {
    sandbox: &'a Sandbox,
    exec_id: String,
    events: tonic::Streaming<AttachEvent>,
    typed: u64,
    seen: String,
}

impl<'a> Seat<'a> {
    async fn take(sandbox: &'a Sandbox, request: ExecRequest) -> Self {
        let terminal = Some(TerminalSize { columns: 80, rows: 24 });
        let request = ExecRequest { terminal, stdin_open: true, ..request };
        let exec_id = request.exec_id.clone();
        sandbox.client.clone().start(signed(request)).await.unwrap();
        let attach = AttachRequest { exec_id: exec_id.clone(), ..Default::default() };
        let events = sandbox.client.clone().attach(signed(attach)).await.unwrap().into_inner();
        Self { sandbox, exec_id, events, typed: 0, seen: String::new() }
    }

    async fn type_in(&mut self, keys: &str) {
        self.write(keys, false).await;
    }

    async fn write(&mut self, keys: &str, eof: bool) {
        let exec_id = self.exec_id.clone();
        let chunk = StdinChunk { exec_id, offset: self.typed, data: keys.to_owned().into(), eof };
        self.typed =
            self.sandbox.client.clone().write_stdin(signed(chunk)).await.unwrap().into_inner().offset;
    }

    /// Reads until `text` has been printed; drops the output up to its end.
    async fn until(&mut self, text: &str) {
        let shown = async {
            loop {
                if let Some(at) = self.seen.find(text) {
                    self.seen.drain(..at + text.len());
                    return;
                }
                match self.events.message().await.unwrap().and_then(|event| event.event) {
                    Some(Event::Stdout(chunk)) => {
                        self.seen.push_str(std::str::from_utf8(&chunk.data).unwrap())
                    }
                    other => panic!("{other:?} instead of {text:?} after {:?}", self.seen),
                }
            }
        };
        let in_time = tokio::time::timeout(LIMIT, shown).await.is_ok();
        assert!(in_time, "no {text:?} in {:?}", self.seen);
    }

    async fn result(&mut self) -> ExecResult {
        let ended = async {
            loop {
                match self.events.message().await.unwrap().and_then(|event| event.event) {
                    Some(Event::Stdout(chunk)) => {
                        self.seen.push_str(std::str::from_utf8(&chunk.data).unwrap())
                    }
                    Some(Event::Result(result)) => return result,
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::time::timeout(LIMIT, ended).await.unwrap()
    }

    async fn resize(&self, columns: u32, rows: u32) -> Result<(), tonic::Status> {
        let terminal = Some(TerminalSize { columns, rows });
        let request = ResizeRequest { exec_id: self.exec_id.clone(), terminal };
        self.sandbox.client.clone().resize(signed(request)).await.map(drop)
    }
}

#[tokio::test]
async fn a_terminal_is_the_sandboxs_own_of_the_size_and_with_a_name() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest {
        user: "nobody".into(),
        ..shell(
            "tty; stty size; echo $TERM; test -t 0 -a -t 1 -a -t 2 && echo three; echo err >&2; : > /dev/tty && echo own",
        )
    };
    let mut seat = Seat::take(&sandbox, request).await;
    seat.until("/dev/pts/").await;
    seat.until("\r\n24 80\r\nxterm-256color\r\nthree\r\nerr\r\nown\r\n").await;
    let result = seat.result().await;
    assert_eq!((result.end(), result.exit_code, result.stderr.unwrap().total_bytes), (End::Exited, 0, 0));
    let mut named =
        Seat::take(&sandbox, ExecRequest { env: env(&[("TERM", "dumb")]), ..shell("echo $TERM; exit 7") })
            .await;
    named.until("dumb\r\n").await;
    assert_eq!(named.result().await.exit_code, 7);
}

#[tokio::test]
async fn a_shell_has_job_control_and_its_keys_work() {
    let sandbox = Sandbox::start().await;
    let request =
        ExecRequest { env: env(&[("PS1", "ready> ")]), ..argv(&["bash", "--norc", "--noprofile", "-i"]) };
    let mut seat = Seat::take(&sandbox, request).await;
    seat.until("ready> ").await;
    seat.type_in("sleep 1000\r").await;
    seat.until("sleep 1000\r\n").await;
    sandbox.until("pgrep -cx sleep; true", "1\n").await;
    seat.type_in("\u{3}").await;
    seat.until("ready> ").await;
    seat.type_in("echo code $?\r").await;
    seat.until("\rcode 130\r\n").await;
    seat.type_in("sleep 1001\r").await;
    sandbox.until("pgrep -cx sleep; true", "1\n").await;
    seat.type_in("\u{1a}").await;
    seat.until("Stopped").await;
    seat.type_in("kill -9 %1; fg; exit 5\r").await;
    assert_eq!(seat.result().await.exit_code, 5);
    assert!(!seat.seen.contains("no job control"));
}

#[tokio::test]
async fn a_signal_of_a_key_goes_to_the_foreground_and_others_to_the_command() {
    let sandbox = Sandbox::start().await;
    let request =
        ExecRequest { env: env(&[("PS1", "ready> ")]), ..argv(&["bash", "--norc", "--noprofile", "-i"]) };
    let mut seat = Seat::take(&sandbox, request).await;
    seat.until("ready> ").await;
    seat.type_in("sleep 1000\r").await;
    sandbox.until("pgrep -cx sleep; true", "1\n").await;
    let signal = |signal| SignalRequest { exec_id: seat.exec_id.clone(), signal, ..Default::default() };
    sandbox.client.clone().signal(signed(signal(2))).await.unwrap();
    sandbox.until("pgrep -cx sleep; true", "0\n").await;
    sandbox.client.clone().signal(signed(signal(1))).await.unwrap();
    assert_eq!(seat.result().await.signal, 1);
}

#[tokio::test]
async fn a_new_size_is_told_and_a_wrong_one_refused() {
    let sandbox = Sandbox::start().await;
    let mut seat =
        Seat::take(&sandbox, shell("trap 'stty size; exit 3' WINCH; echo set; while :; do sleep 0.05; done"))
            .await;
    seat.until("set\r\n").await;
    assert_eq!(problem(&seat.resize(0, 10).await.unwrap_err()).code, Code::InvalidArgument);
    seat.resize(132, 50).await.unwrap();
    seat.until("50 132\r\n").await;
    assert_eq!(seat.result().await.exit_code, 3);
    assert_eq!(problem(&seat.resize(80, 24).await.unwrap_err()).code, Code::Conflict);
    let plain = argv(&["sleep", "1000"]);
    let exec_id = plain.exec_id.clone();
    sandbox.client.clone().start(signed(plain)).await.unwrap();
    let resize = ResizeRequest { exec_id, terminal: Some(TerminalSize { columns: 80, rows: 24 }) };
    let refused = sandbox.client.clone().resize(signed(resize)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::InvalidArgument);
}

#[tokio::test]
async fn the_end_of_the_input_is_typed_also_after_half_a_line() {
    let sandbox = Sandbox::start().await;
    for (input, lines) in [("", 0), ("one\ntwo\n", 2), ("one\ntwo\nhalf", 2)] {
        let mut seat = Seat::take(&sandbox, shell("wc -lc")).await;
        seat.write(input, true).await;
        seat.until(&format!("{lines} ")).await;
        seat.until(&format!("{}\r\n", input.len())).await;
        assert_eq!(seat.result().await.exit_code, 0);
    }
}

#[tokio::test]
async fn a_cancelled_command_hears_the_hang_up_first_and_nothing_is_left() {
    let sandbox = Sandbox::start().await;
    let command = "trap 'echo bye > bye; exit' HUP; echo set; sleep 1000 & while :; do wait; done";
    let (mut heard, began) = (false, Instant::now());
    // The command has 0.1 s to handle the hang-up, in which a busy machine may not run it; so it is tried repeatedly.
    while !heard && began.elapsed() < LIMIT {
        let mut seat = Seat::take(&sandbox, shell(command)).await;
        seat.until("set\r\n").await;
        assert_eq!(sandbox.cancel(&seat.exec_id).await.unwrap().end(), End::Cancelled);
        sandbox.until("pgrep -cx sleep; true", "0\n").await;
        heard = sandbox.sh("cat bye 2> /dev/null; true").await == "bye\n";
    }
    assert!(heard, "it was killed before it received the hang-up");
    let deaf = shell("trap '' HUP TERM; echo set; while :; do sleep 1000; done");
    let mut seat = Seat::take(&sandbox, deaf).await;
    seat.until("set\r\n").await;
    sandbox.cancel(&seat.exec_id).await.unwrap();
    sandbox.until("pgrep -cx sleep; true", "0\n").await;
}

#[tokio::test]
async fn a_daemon_of_a_terminal_holds_neither_the_answer_nor_the_terminal() {
    let sandbox = Sandbox::start().await;
    let mut seat = Seat::take(&sandbox, shell(DAEMON)).await;
    assert_eq!(seat.result().await.exit_code, 0);
    assert_eq!(seat.seen, "last words\r\n");
    let descriptors = format!("/proc/{}/fd", sandbox.sidecar.0.id());
    let held = || {
        std::fs::read_dir(&descriptors).unwrap().any(|entry| {
            let path = std::fs::read_link(entry.unwrap().path());
            path.is_ok_and(|path| path.ends_with("ptmx"))
        })
    };
    let given_back = async {
        while held() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, given_back).await.is_ok(), "the terminal is held");
    assert_eq!(sandbox.sh("pgrep -cx sleep").await, "1\n");
}

#[tokio::test]
async fn much_output_of_a_terminal_arrives_whole() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest { output_waits: true, ..shell("stty -opost; seq 1 300000; exit 9") };
    let mut seat = Seat::take(&sandbox, request).await;
    assert_eq!(seat.result().await.exit_code, 9);
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert!(seat.seen == expected, "{} of {}", seat.seen.len(), expected.len());
}
