//! Commands that are started, and clients that attach to them and leave.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use http::Method;
use serde_json::{Value, json};
use support::running::CHUNK;
use support::socket::{Received, Socket};
use support::{Answer, Rig, Started, token_of};

async fn post(rig: &Started, path: &str, body: Value) -> Answer {
    let request = rig.client.request(Method::POST, &format!("/v1/sandboxes/sb-1/{path}"));
    let token = format!("Bearer {}", token_of("sb-1", "alice", &["exec"]));
    rig.client.send(request.header("authorization", token).body(body.to_string().into()).unwrap()).await
}

/// Starts a command as `e-1`.
async fn start(rig: &Started, command: &str) {
    let answer = post(rig, "execs", json!({"exec_id": "e-1", "command": command, "stdin_open": true})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// A gateway with a started command, and a client that is attached to it.
async fn attached(command: &str) -> (Started, Socket) {
    let rig = Rig::new().sandbox("sb-1").start().await;
    start(&rig, command).await;
    let socket = rig.attach("e-1", "").await;
    (rig, socket)
}

#[tokio::test]
async fn a_command_is_started_with_all_that_was_asked_for() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let body = json!({"exec_id": "e-1", "argv": ["top"], "stdin_open": true, "output_waits": true, "orphan_grace_ms": 90_000, "umask": 0o27,
        "terminal": {"columns": 80, "rows": 24}, "keep": "tail", "max_output_bytes": 100});
    let started = post(&rig, "execs", body.clone()).await.json();
    assert_eq!(started, json!({"exec_id": "e-1", "pid": 7, "spawn_ms": 0.9, "replayed": false}));
    assert_eq!(post(&rig, "execs", body).await.json()["replayed"], true);
    let seen = rig.sidecar("sb-1").seen(1).await.remove(0);
    let size = seen.terminal.unwrap();
    assert_eq!((size.columns, size.rows, seen.umask), (80, 24, Some(0o27)));
    assert!(seen.stdin_open && seen.output_waits);
    assert_eq!(seen.orphan_grace_ms, 90_000);
}

#[tokio::test]
async fn what_cannot_be_started_is_refused_before_anything_happens() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    for (body, field) in [
        (json!({"command": "a", "terminal": {"columns": 0, "rows": 1}}), "terminal.columns"),
        (json!({"command": "a", "terminal": {"columns": 1}}), "terminal"),
        (
            json!({"command": "a", "terminal": {"columns": 1, "rows": 1}, "max_stderr_bytes": 1}),
            "max_stderr_bytes",
        ),
        (json!({"command": "a", "output_waits": true, "keep": "head"}), "output_waits"),
        (json!({"command": "a", "merge": true, "max_stderr_bytes": 1}), "merge"),
        (json!({"command": "a", "merge": true, "terminal": {"columns": 1, "rows": 1}}), "merge"),
        (json!({"command": "a", "umask": 512}), "umask"),
        (json!({"command": "a", "keep": "middle"}), "keep"),
    ] {
        let answer = post(&rig, "execs", body).await;
        assert_eq!(
            (answer.code().as_str(), &answer.json()["details"]["field"]),
            ("invalid_argument", &json!(field))
        );
    }
    for (field, value) in [
        ("output_waits", json!(false)),
        ("orphan_grace_ms", json!(1)),
        ("terminal", json!({"columns": 1, "rows": 1})),
    ] {
        let answer = post(&rig, "exec", json!({"command": "a", field: value})).await;
        assert_eq!(answer.json()["details"]["field"], field);
    }
    assert_eq!(post(&rig, "execs", json!({"command": "problem conflict"})).await.code(), "conflict");
    assert_eq!(rig.sidecar("sb-1").seen_now(), 1);
}

#[tokio::test]
async fn an_attached_client_writes_reads_and_gets_the_result() {
    let (rig, mut socket) = attached("cat").await;
    socket.stdin(0, b"hello ").await;
    assert_eq!(socket.text("stdin").await["offset"], 6);
    // A repeat, as by a client that missed the acknowledgement.
    socket.stdin(0, b"hello world").await;
    socket.say(r#"{"type": "stdin_eof", "offset": 11}"#).await;
    let (_, result, code) = socket.rest().await;
    assert_eq!((&result["type"], &result["end"], code), (&json!("result"), &json!("exited"), 1000));
    assert_eq!((&result["stdout_total_bytes"], &result["spawn_ms"]), (&json!(11), &json!(0.9)));
    assert_eq!(rig.sidecar("sb-1").processes().fed("e-1", 11).await, b"hello world");
    rig.client.until_metric("attach_ends_total{end=\"result\"}", 1.0).await;
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn an_ended_command_is_replayed_from_any_offset() {
    let (rig, mut socket) = attached("echo 0123456789").await;
    assert_eq!(socket.rest().await.0, b"0123456789");
    let mut again = rig.attach("e-1", "?stdout_offset=6&stderr_offset=0").await;
    assert_eq!(again.next().await, Received::Output { kind: 1, offset: 6, data: "6789".into() });
    assert_eq!(again.rest().await.1["stdout_total_bytes"], 10);
    rig.client.until_metric("attaches_total{kind=\"again\"}", 1.0).await;
}

#[tokio::test]
async fn what_cannot_be_attached_to_is_a_plain_problem() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    for (exec_id, query, expected) in [
        ("unknown", "", (404, "exec_not_found")),
        ("e-1", "?stdout_offset=x", (400, "invalid_argument")),
        ("e-1", "?offset=1", (400, "invalid_argument")),
        ("a%20b", "", (400, "invalid_argument")),
    ] {
        let refused = rig.try_attach(exec_id, query).await.unwrap_err();
        assert_eq!((refused.0, refused.1.as_str()), expected, "{exec_id}{query}");
    }
    let token = token_of("sb-1", "alice", &["exec"]);
    let plain = rig.client.call(Method::GET, "/v1/sandboxes/sb-1/execs/e-1/attach", &token).await;
    assert_eq!(
        (plain.code().as_str(), &plain.json()["details"]["field"]),
        ("invalid_argument", &json!("upgrade"))
    );
    let foreign = token_of("sb-2", "alice", &["exec"]);
    let foreign = rig.client.call(Method::GET, "/v1/sandboxes/sb-1/execs/e-1/attach", &foreign).await;
    assert_eq!(foreign.code(), "permission_denied");
}

#[tokio::test]
async fn signals_and_sizes_pass_input_that_nobody_reads() {
    let (rig, mut socket) = attached("deaf").await;
    socket.stdin(0, &[b'x'; 1000]).await;
    socket.say(r#"{"type": "resize", "columns": 100, "rows": 30}"#).await;
    assert_eq!(rig.sidecar("sb-1").processes().resized("e-1", 1).await, [(100, 30)]);
    socket.say(r#"{"type": "signal", "signal": 2, "tree": true}"#).await;
    let (_, result, _) = socket.rest().await;
    assert_eq!((&result["end"], &result["signal"]), (&json!("signalled"), &json!(2)));
}

#[tokio::test]
async fn what_is_typed_after_a_size_was_set_finds_that_size() {
    let (rig, mut socket) = attached("cat").await;
    socket.say(r#"{"type": "resize", "columns": 7, "rows": 30}"#).await;
    socket.stdin(0, b"x").await;
    assert_eq!(socket.text("stdin").await["offset"], 1);
    assert_eq!(rig.sidecar("sb-1").processes().sizes("e-1"), [(7, 30)]);
}

#[tokio::test]
async fn a_signal_is_also_a_request_of_its_own() {
    let (rig, mut socket) = attached("stay").await;
    assert_eq!(post(&rig, "execs/e-1/signal", json!({"signal": 0})).await.code(), "invalid_argument");
    assert_eq!(
        post(&rig, "execs/e-1/signal", json!({"signal": 15, "more": 1})).await.code(),
        "invalid_argument"
    );
    for wrong in [
        json!({"signal": 15, "command_id": ""}),
        json!({"signal": 15, "spared": [7]}),
        json!({"signal": 15, "command_id": "c", "spared": [0]}),
    ] {
        assert_eq!(post(&rig, "execs/e-1/signal", wrong).await.code(), "invalid_argument");
    }
    assert_eq!(post(&rig, "execs/unknown/signal", json!({"signal": 15})).await.code(), "exec_not_found");
    assert_eq!(post(&rig, "execs/e-1/signal", json!({"signal": 15, "tree": true})).await.json(), json!({}));
    assert_eq!(socket.rest().await.1["signal"], 15);
}

#[tokio::test]
async fn input_that_is_no_longer_taken_is_told_and_output_goes_on() {
    let (rig, mut socket) = attached("stay").await;
    socket.stdin(0, b"x").await;
    assert_eq!(socket.text("stdin_closed").await["problem"]["code"], "conflict");
    socket.stdin(1, b"y").await;
    assert_eq!(post(&rig, "execs/e-1/signal", json!({"signal": 9})).await.status, 200);
    assert_eq!(socket.rest().await.1["signal"], 9);
}

#[tokio::test]
async fn malformed_messages_are_refused_with_a_problem_and_a_code() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    start(&rig, "stay").await;
    for text in ["", "{}", "null", r#"{"type": "signal", "signal": 99}"#, r#"{"type": "kill"}"#] {
        let mut socket = rig.attach("e-1", "").await;
        socket.say(text).await;
        let (_, problem, code) = socket.rest().await;
        assert_eq!(
            (&problem["type"], &problem["code"], code),
            (&json!("problem"), &json!("invalid_argument"), 1002)
        );
        assert!(problem["request_id"].as_str().unwrap().len() > 30);
    }
    let mut socket = rig.attach("e-1", "").await;
    socket.stdin(0, &vec![b'x'; (1 << 20) + 1]).await;
    let (_, problem, code) = socket.rest().await;
    assert_eq!((&problem["code"], code), (&json!("payload_too_large"), 1009));
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
}

#[tokio::test]
async fn a_client_that_writes_without_waiting_is_bounded() {
    let (_rig, mut socket) = attached("deaf").await;
    for n in 0..30u64 {
        socket.stdin(n << 16, &[b'x'; 1 << 16]).await;
    }
    let (_, problem, code) = socket.rest().await;
    assert_eq!((&problem["code"], code), (&json!("invalid_argument"), 1002));
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_stream_along_and_nothing_else() {
    let (rig, socket) = attached("stay").await;
    drop(socket);
    rig.sidecar("sb-1").processes().dropped(1).await;
    rig.client.until_metric("attach_ends_total{end=\"left\"}", 1.0).await;
    let mut again = rig.attach("e-1", "").await;
    again.say(r#"{"type": "signal", "signal": 9}"#).await;
    assert_eq!(again.rest().await.1["signal"], 9);
}

#[tokio::test]
async fn a_slow_reader_is_waited_for_at_constant_memory_and_stalls_nobody() {
    let (rig, mut socket) = attached("flood 800").await;
    // Many more bytes than all windows and buffers on the way can hold, and the client does not read; commands still
    // run.
    for _ in 0..20 {
        assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    }
    let handed_out = rig.sidecar("sb-1").processes().chunks();
    assert!(handed_out < 400, "{handed_out}");
    let (output, result, _) = socket.rest().await;
    assert_eq!((output.len(), &result["stdout_total_bytes"]), (800 * CHUNK, &json!(800 * CHUNK)));
    let sent = "stream_bytes_total{stream=\"attach\",direction=\"out\"}";
    rig.client.until_metric(sent, (800 * CHUNK) as f64).await;
}

#[tokio::test]
async fn a_reader_that_stands_still_before_small_pieces_ends_no_other_call() {
    // More than a stream's window takes; each piece counts with 256 bytes, of which half a connection's window may wait.
    const PIECES: usize = 60_000;
    let (rig, mut socket) = attached(&format!("drip {PIECES}")).await;
    for _ in 0..20 {
        assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    }
    let (output, result, _) = socket.rest().await;
    assert_eq!((output.len(), &result["stdout_total_bytes"]), (PIECES, &json!(PIECES)));
}

#[tokio::test]
async fn a_sandbox_that_ends_is_the_last_message() {
    let (rig, mut socket) = attached("stay").await;
    rig.feed().end("sb-1", 1, "oom_killed");
    let (_, problem, code) = socket.rest().await;
    assert_eq!((&problem["code"], &problem["fault"], code), (&json!("oom_killed"), &json!("workload"), 1000));
}

#[tokio::test]
async fn a_drain_sends_attached_clients_elsewhere() {
    let (mut rig, mut socket) = attached("stay").await;
    let stopping = tokio::spawn(rig.running.take().unwrap().stop());
    assert_eq!(socket.rest().await.2, 1012);
    stopping.await.unwrap();
    rig.sidecar("sb-1").processes().dropped(1).await;
}

#[tokio::test]
async fn a_gateway_that_is_dropped_leaves_no_stream_behind() {
    let (mut rig, mut socket) = attached("stay").await;
    drop(rig.running.take());
    while !matches!(socket.next().await, Received::Closed(_) | Received::Broken) {}
    rig.sidecar("sb-1").processes().dropped(1).await;
}

#[tokio::test]
async fn attached_clients_have_places_of_their_own() {
    let rig = Rig::new()
        .sandbox("sb-1")
        .set("MAX_STREAMS_PER_SANDBOX", 1)
        .set("MAX_INFLIGHT", 1)
        .set("QUEUE_TIMEOUT_MS", 50)
        .start()
        .await;
    start(&rig, "stay").await;
    let _held = rig.attach("e-1", "").await;
    assert_eq!(rig.try_attach("e-1", "").await.unwrap_err(), (503, "capacity_unavailable".to_owned()));
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
}
