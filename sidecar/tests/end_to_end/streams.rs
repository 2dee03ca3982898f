//! Input and output.

use wire::Code;
use wire::agent::attach_event::Event;
use wire::agent::{AttachRequest, End, ExecRequest, Keep, StdinChunk};

use crate::sandbox::{Sandbox, argv, problem, shell, signed, text};

#[tokio::test]
async fn of_much_output_the_tail_is_kept_and_the_rest_is_counted() {
    let sandbox = Sandbox::start().await;
    let total = 100_000_000;
    let request = ExecRequest {
        max_output_bytes: 1000,
        ..shell(&format!("yes 0123456 | head -c {total}; printf END >&2"))
    };
    let result = sandbox.exec(request).await.unwrap();
    let (stdout, stderr) = (result.stdout.as_ref().unwrap(), result.stderr.as_ref().unwrap());
    assert_eq!((stdout.total_bytes, stdout.truncated, stdout.data.len()), (total, true, 1000));
    assert!(text(&result).ends_with("0123456\n0123456\n"));
    assert_eq!((stderr.data.as_slice(), stderr.truncated), (&b"END"[..], false));
}

#[tokio::test]
async fn each_stream_has_its_limit_and_the_beginning_can_be_kept() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest {
        max_output_bytes: 10,
        max_stderr_bytes: 5,
        keep: Keep::Head.into(),
        ..shell("seq 1 2000000; printf error-text >&2")
    };
    let result = sandbox.exec(request).await.unwrap();
    let (stdout, stderr) = (result.stdout.as_ref().unwrap(), result.stderr.as_ref().unwrap());
    assert_eq!(
        (stdout.data.as_slice(), stdout.total_bytes, stdout.truncated),
        (&b"1\n2\n3\n4\n5\n"[..], 14_888_896, true)
    );
    assert_eq!((stderr.data.as_slice(), stderr.total_bytes, stderr.truncated), (&b"error"[..], 10, true));
    let request = ExecRequest { max_stderr_bytes: 5, ..shell("printf error-text >&2") };
    assert_eq!(sandbox.exec(request).await.unwrap().stderr.unwrap().data, b"-text");
}

#[tokio::test]
async fn every_byte_value_survives_in_both_directions() {
    let sandbox = Sandbox::start().await;
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let result = sandbox.exec(ExecRequest { stdin: bytes.clone().into(), ..argv(&["cat"]) }).await.unwrap();
    assert_eq!(result.stdout.unwrap().data, bytes);
}

#[tokio::test]
async fn input_that_nobody_reads_and_no_input_are_both_fine() {
    let sandbox = Sandbox::start().await;
    let large = vec![b'x'; 10 << 20];
    assert_eq!(
        sandbox.exec(ExecRequest { stdin: large.into(), ..argv(&["true"]) }).await.unwrap().exit_code,
        0
    );
    assert_eq!(sandbox.sh("cat; readlink /proc/self/fd/0").await, "/dev/null\n");
}

#[tokio::test]
async fn as_many_arguments_arrive_as_the_kernel_takes_and_more_are_refused_by_its_word() {
    let sandbox = Sandbox::start().await;
    let many = |count: usize| {
        let mut request = argv(&["sh", "-c", "echo $# ${#1}", "sh"]);
        request.argv.extend(std::iter::repeat_n("x".repeat(100_000), count));
        request
    };
    assert_eq!(text(&sandbox.exec(many(19)).await.unwrap()), "19 100000\n");
    let variables = (0..9).map(|n| (format!("V{n}"), "x".repeat(100_000)));
    let both = ExecRequest { env: variables.collect(), ..many(13) };
    let whole = ExecRequest { env: both.env.clone(), ..many(10) };
    assert_eq!(text(&sandbox.exec(whole).await.unwrap()), "10 100000\n");
    for request in [many(22), both, many(62), many(70), argv(&["true", &"x".repeat(131_072)])] {
        let refused = sandbox.exec(request).await.unwrap_err();
        assert_eq!(
            (refused.code, &*refused.details["reason"]),
            (Code::InvalidArgument, "arguments_too_large")
        );
    }
    assert_eq!(sandbox.sh("echo alive").await, "alive\n");
}

#[tokio::test]
async fn an_exec_whose_input_is_written_answers_once_and_sends_its_writer_no_output() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest { stdin_open: true, ..shell("echo begun; wc -c; echo err >&2") };
    let exec_id = request.exec_id.clone();
    let mut client = sandbox.client.clone();
    client.start(signed(request.clone())).await.unwrap();
    let (stdout_offset, stderr_offset) = (1 << 62, 1 << 62);
    let attach = AttachRequest { exec_id: exec_id.clone(), stdout_offset, stderr_offset };
    let mut events = client.attach(signed(attach)).await.unwrap().into_inner();
    let piece: bytes::Bytes = vec![b'x'; 64 << 10].into();
    let count = 100;
    let write = async {
        let mut client = sandbox.client.clone();
        for n in 0..=count {
            let (offset, eof) = (n * piece.len() as u64, n == count);
            let data = if eof { bytes::Bytes::new() } else { piece.clone() };
            client
                .write_stdin(signed(StdinChunk { exec_id: exec_id.clone(), offset, data, eof }))
                .await
                .unwrap();
        }
    };
    let ((), result) = tokio::join!(write, sandbox.exec(request));
    let result = result.unwrap();
    assert_eq!((text(&result), result.end()), (format!("begun\n{}\n", count << 16), End::Exited));
    let only = events.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(only, Event::Result(_)), "{only:?}");
}

#[tokio::test]
async fn an_attached_reader_sees_all_from_any_offset_and_then_the_result() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest {
        max_output_bytes: 10,
        stdin_open: true,
        ..shell("printf 0123456789abcdef; read -r line; echo $line; echo err >&2; exit 4")
    };
    let exec_id = request.exec_id.clone();
    let mut client = sandbox.client.clone();
    let started = client.start(signed(request.clone())).await.unwrap().into_inner();
    assert!(started.pid > 1 && !started.replayed);
    assert!(client.start(signed(request)).await.unwrap().into_inner().replayed);

    let chunk = |offset, data: &str, eof| StdinChunk {
        exec_id: exec_id.clone(),
        offset,
        data: data.to_owned().into(),
        eof,
    };
    assert_eq!(client.write_stdin(signed(chunk(0, "he", false))).await.unwrap().into_inner().offset, 2);
    let gap = client.write_stdin(signed(chunk(9, "x", false))).await.unwrap_err();
    assert_eq!(problem(&gap).code, Code::Conflict);
    let attach = |stdout_offset| AttachRequest { exec_id: exec_id.clone(), stdout_offset, stderr_offset: 0 };
    let mut events = client.attach(signed(attach(3))).await.unwrap().into_inner();
    let Some(Event::Stdout(first)) = events.message().await.unwrap().unwrap().event else {
        panic!("the first event is not output")
    };
    assert_eq!((first.offset, &first.data[..]), (6, &b"6789abcdef"[..]), "the gap is explicit");
    client.write_stdin(signed(chunk(0, "hello\n", true))).await.unwrap();

    let (mut stdout, mut stderr, mut result) = (Vec::new(), Vec::new(), None);
    while let Some(event) = events.message().await.unwrap() {
        match event.event.unwrap() {
            Event::Stdout(chunk) => stdout.extend(chunk.data),
            Event::Stderr(chunk) => stderr.extend(chunk.data),
            Event::Result(ended) => result = Some(ended),
        }
    }
    assert_eq!((stdout.as_slice(), stderr.as_slice()), (&b"hello\n"[..], &b"err\n"[..]));
    let result = result.unwrap();
    assert_eq!((result.end(), result.exit_code, result.stdout.unwrap().total_bytes), (End::Exited, 4, 22));
    let mut again = client.attach(signed(attach(22))).await.unwrap().into_inner();
    assert!(matches!(again.message().await.unwrap().unwrap().event, Some(Event::Stderr(_))));
    assert!(matches!(again.message().await.unwrap().unwrap().event, Some(Event::Result(_))));
}
