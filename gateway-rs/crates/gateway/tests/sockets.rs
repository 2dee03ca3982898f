//! WebSockets whose other end is dead, slow, or does not follow the protocol: attached clients and connections to
//! ports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::time::Duration;

use futures_util::SinkExt as _;
use http::Method;
use serde_json::json;
use support::clock::{Stopped, real_pause};
use support::socket::{Received, Socket};
use support::{Rig, Started, token_of};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// Starts a command as `e-1`.
async fn start(rig: &Started, command: &str) {
    let request = rig.client.request(Method::POST, "/v1/sandboxes/sb-1/execs");
    let token = format!("Bearer {}", token_of("sb-1", "alice", &["exec"]));
    let body = json!({"exec_id": "e-1", "command": command, "stdin_open": true}).to_string();
    assert_eq!(
        rig.client.send(request.header("authorization", token).body(body.into()).unwrap()).await.status,
        200
    );
}

async fn attached(command: &str) -> (Started, Socket) {
    let rig = Rig::new().sandbox("sb-1").start().await;
    start(&rig, command).await;
    let socket = rig.attach("e-1", "").await;
    (rig, socket)
}

/// Shorter than the time between two pings, so that each is answered before the next one.
const STEP: Duration = Duration::from_secs(4);
/// When the counter has not changed for so many checks, nothing can move any more. Between two checks every task in
/// this process gets to run.
const LOOKS: usize = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Waits until nothing moves any more: all buffers on the way to a client that does not read are full.
async fn until_stuck(rig: &Started) {
    let sent = async || rig.client.metric("stream_bytes_total{stream=\"attach\",direction=\"out\"}").await;
    let (mut before, mut same) = (-1.0, 0);
    while same < LOOKS {
        let now = sent().await;
        same = if now > before { 0 } else { same + 1 };
        before = now;
        real_pause(BETWEEN_LOOKS).await;
    }
}

/// A frame of a client: the given first byte, the length, a mask that changes nothing, a payload of any length.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            frame.push(0xff);
            frame.extend_from_slice(&u64::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// The head of a binary frame that announces so many bytes.
fn promise(length: u64) -> Vec<u8> {
    [&[0x82, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat()
}

/// What no client may send (RFC 6455), and the close code of the gateway's answer.
fn wrong_frames() -> Vec<(&'static str, Vec<u8>, u16)> {
    let piece = vec![0; 600 << 10];
    vec![
        ("a reserved opcode", frame(0x83, b""), 1002),
        ("a reserved control opcode", frame(0x8b, b""), 1002),
        ("reserved bits", frame(0xc2, b"x"), 1002),
        ("no mask", vec![0x82, 1, b'x'], 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        ("a message within a message", [frame(0x02, b"x"), frame(0x82, b"x")].concat(), 1002),
        ("a ping in pieces", frame(0x09, b""), 1002),
        ("a ping that is too large", frame(0x89, &[0; 126]), 1002),
        ("a close code of one byte", frame(0x88, b"x"), 1002),
        ("a text that is none", frame(0x81, b"\xff\xfe"), 1007),
        ("a text that is none, in pieces", [frame(0x01, b"\xff"), frame(0x80, b"\xfe")].concat(), 1007),
        ("2^63 bytes", promise(1 << 63), 1009),
        ("all bytes that there are", promise(u64::MAX), 1009),
        ("a byte too many", promise((1 << 20) + 10), 1009),
        ("pieces that are too much together", [frame(0x02, &piece), frame(0x80, &piece)].concat(), 1009),
    ]
}

/// Returns the gateway's answer to these bytes: the code of its problem, and its close code.
async fn answer(mut socket: Socket, bytes: &[u8]) -> (String, u16) {
    // A frame that is too large may break the connection while it is still being sent.
    drop(socket.stream.get_mut().write_all(bytes).await);
    let (_, problem, code) = socket.rest().await;
    (problem["code"].as_str().unwrap_or_default().to_owned(), code)
}

fn expected(close: u16) -> (String, u16) {
    (if close == 1009 { "payload_too_large" } else { "invalid_argument" }.to_owned(), close)
}

#[tokio::test]
async fn frames_that_are_none_are_answered_and_the_gateway_lives() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    start(&rig, "stay").await;
    for (what, bytes, close) in wrong_frames() {
        assert_eq!(answer(rig.attach("e-1", "").await, &bytes).await, expected(close), "{what}");
        assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi", "{what}");
    }
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn so_they_are_on_connections_to_ports() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for path in [
        format!("ports/{}/tcp", tcp.local_addr().unwrap().port()),
        format!("ports/{}/udp", udp.local_addr().unwrap().port()),
    ] {
        for (what, bytes, close) in wrong_frames() {
            let socket = rig.websocket(&path).await.unwrap();
            assert_eq!(answer(socket, &bytes).await, expected(close), "{path}: {what}");
        }
    }
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn a_message_without_end_is_given_up() {
    let clock = Stopped::now().await;
    let (rig, mut socket) = attached("stay").await;
    socket.stream.get_mut().write_all(&frame(0x02, b"x")).await.unwrap();
    for n in 0..8 {
        assert_eq!(rig.client.metric("streams_open{stream=\"attach\"}").await, 1.0, "after {} s", n * 2);
        for _ in 0..1_000 {
            socket.stream.get_mut().write_all(&frame(0x00, b"")).await.unwrap();
        }
        clock.pass(Duration::from_secs(2)).await;
    }
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
}

#[tokio::test]
async fn a_client_that_is_frozen_is_given_up_and_one_that_answers_pings_is_not() {
    let clock = Stopped::now().await;
    let (rig, frozen) = attached("stay").await;
    let mut alive = rig.attach("e-1", "").await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { alive.rest().await.1 });
    for _ in 0..3 {
        clock.pass(STEP).await;
    }
    assert_eq!(rig.client.metric("streams_open{stream=\"attach\"}").await, 2.0);
    for _ in 0..5 {
        clock.pass(STEP).await;
    }
    rig.client.until_metric("attach_ends_total{end=\"left\"}", 1.0).await;
    rig.sidecar("sb-1").processes().dropped(1).await;
    rig.client.until_metric("streams_open{stream=\"attach\"}", 1.0).await;
    drop(frozen);
    let mut again = rig.attach("e-1", "").await;
    again.say(r#"{"type": "signal", "signal": 9}"#).await;
    assert_eq!(tasks.join_next().await.unwrap().unwrap()["signal"], 9);
}

/// Sends pings but reads nothing, until the gateway gives the client up.
async fn ignore(clock: &Stopped, socket: &mut Socket) {
    for _ in 0..8 {
        socket.stream.send(Message::Ping(Default::default())).await.unwrap();
        clock.pass(STEP).await;
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_told_when_it_comes_again() {
    let clock = Stopped::now().await;
    let (rig, mut socket) = attached("flood 800").await;
    until_stuck(&rig).await;
    ignore(&clock, &mut socket).await;
    let (output, problem, code) = socket.rest().await;
    assert_eq!((&problem["code"], code), (&json!("stream_interrupted"), 1008));
    assert!(problem["detail"].as_str().unwrap().contains("took nothing for 30 s"), "{problem}");
    // Another attach continues from there.
    let mut again = rig.attach("e-1", &format!("?stdout_offset={}", output.len())).await;
    let (rest, result, _) = again.rest().await;
    assert_eq!(result["stdout_total_bytes"], output.len() + rest.len());
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
}

#[tokio::test]
async fn a_client_that_never_comes_again_frees_its_place() {
    let clock = Stopped::now().await;
    let (rig, mut socket) = attached("flood 800").await;
    until_stuck(&rig).await;
    ignore(&clock, &mut socket).await;
    assert_eq!(rig.client.metric("streams_open{stream=\"attach\"}").await, 1.0);
    for _ in 0..4 {
        clock.pass(STEP).await;
    }
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
    rig.client.until_metric("calls", 0.0).await;
    rig.sidecar("sb-1").processes().dropped(1).await;
}

#[tokio::test]
async fn a_slow_reader_of_a_port_is_told_too() {
    let clock = Stopped::now().await;
    let rig = Rig::new().sandbox("sb-1").start().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let mut socket = rig.websocket(&format!("ports/{port}/tcp")).await.unwrap();
    let (peer, _) = server.accept().await.unwrap();
    let piece = vec![b'x'; 1 << 20];
    // Until no buffer has room.
    let mut refused = 0;
    while refused < LOOKS {
        refused = if peer.try_write(&piece).is_ok() { 0 } else { refused + 1 };
        real_pause(BETWEEN_LOOKS).await;
    }
    ignore(&clock, &mut socket).await;
    let (problem, code) = loop {
        match socket.next_message().await {
            Some(Message::Binary(_)) => {}
            Some(Message::Text(text)) => break (text, socket.next().await),
            other => panic!("{other:?}"),
        }
    };
    assert!(problem.contains("took nothing for 30 s"), "{problem}");
    assert_eq!(code, Received::Closed(1008));
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn a_client_that_does_not_answer_a_close_frees_its_place_soon() {
    let clock = Stopped::now().await;
    let (rig, mut socket) = attached("echo hi").await;
    // The client reads nothing, so it answers nothing.
    rig.client.until_metric("attach_ends_total{end=\"result\"}", 1.0).await;
    clock.pass(Duration::from_secs(1)).await;
    assert_eq!(rig.client.metric("streams_open{stream=\"attach\"}").await, 1.0);
    clock.pass(Duration::from_secs(2)).await;
    rig.client.until_metric("streams_open{stream=\"attach\"}", 0.0).await;
    assert_eq!(socket.rest().await.0, b"hi");
}
