//! What clients may send byte by byte: odd framing, methods and targets. None of it may confuse the gateway.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use serde_json::Value;
use support::controlplane::LIMIT;
use support::{Rig, Started, token_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ECHO: &str = "{\"command\": \"echo hi\"}";

/// Sends `bytes` and reads until the gateway closes the connection or falls silent.
async fn said(rig: &Started, bytes: &str) -> String {
    let mut stream = TcpStream::connect(rig.client.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let reading = stream.read_to_end(&mut said);
    drop(tokio::time::timeout(LIMIT, reading).await);
    String::from_utf8(said).unwrap()
}

/// An exec request in HTTP/1.1 whose connection ends with it.
fn exec(headers: &str, body: &str) -> String {
    let token = token_of("sb-1", "alice", &["exec"]);
    format!(
        "POST /v1/sandboxes/sb-1/exec HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{headers}\r\n\r\n{body}"
    )
}

fn body_of(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

/// RFC 9112 section 6.3: if two servers trust different framings, they disagree on where the next request starts
/// (request smuggling).
#[tokio::test]
async fn a_request_with_two_framings_is_read_and_forwarded_by_one_and_is_the_last_of_its_connection() {
    let rig = Rig::new().start().await;
    let chunked = format!("{:x}\r\n{ECHO}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", ECHO.len());
    for both in
        ["content-length: 5\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 5"]
    {
        let answer =
            said(&rig, &format!("POST /v1/echo HTTP/1.1\r\nhost: x\r\n{both}\r\n\r\n{chunked}")).await;
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        let seen = body_of(&answer);
        assert_eq!((&seen["body"], &seen["headers"]["content-length"]), (&Value::from(ECHO), &Value::Null));
    }
}

#[tokio::test]
async fn bodies_come_in_every_framing_that_http_knows() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let length = format!("content-length: {}", ECHO.len());
    let (start, rest) = ECHO.split_at(4);
    let chunked = format!("4;ext=1\r\n{start}\r\n{:x}\r\n{rest}\r\n0\r\nx-trailer: 1\r\n\r\n", rest.len());
    for request in [
        exec(&length, ECHO),
        exec(&length, ECHO).replace("HTTP/1.1", "HTTP/1.0"),
        exec("transfer-encoding: chunked", &chunked),
    ] {
        let answer = said(&rig, &request).await;
        assert_eq!(body_of(&answer)["stdout"], "hi", "{answer}");
    }
    let expecting = said(&rig, &exec(&format!("{length}\r\nexpect: 100-continue"), ECHO)).await;
    let (interim, answer) = expecting.split_once("\r\n\r\n").unwrap();
    assert_eq!((interim, &body_of(answer)["stdout"]), ("HTTP/1.1 100 Continue", &Value::from("hi")));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let bodies = ["{\"command\": \"echo 1\"}", "{\"command\": \"echo 2\"}"];
    let requests = bodies.map(|body| exec(&format!("content-length: {}", body.len()), body));
    let answers = said(&rig, &(requests[0].replace("connection: close\r\n", "") + &requests[1])).await;
    let order = ["\"stdout\":\"1\"", "\"stdout\":\"2\""].map(|stdout| answers.find(stdout).unwrap());
    assert!(order[0] < order[1], "{answers}");
}

#[tokio::test]
async fn odd_targets_are_problems_and_absolute_ones_lead_to_the_same_place() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    for line in
        ["CONNECT evil.example:443", "OPTIONS *", "GET /v1", "TRACE /healthz", "GET http://evil.example"]
    {
        let answer = said(&rig, &format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        assert_eq!(body_of(&answer)["code"], "invalid_argument", "{line}: {answer}");
    }
    let absolute = "GET http://evil.example:9/v1/echo?a=1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(body_of(&said(&rig, absolute).await)["uri"], "/v1/echo?a=1");
}

#[tokio::test]
async fn an_upgrade_is_answered_as_the_plain_request_that_it_also_is() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let upgrade = "connection: close, upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13";
    for (path, status) in [("/v1/sandboxes/sb-1/exec", "400"), ("/v1/echo", "201")] {
        let answer = said(&rig, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn a_head_request_gets_a_head_and_no_body() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    for path in ["/healthz", "/v1/echo", "/nothing"] {
        let answer =
            said(&rig, &format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn headers_that_may_come_once_come_once() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let length = format!("content-length: {}", ECHO.len());
    let twice = exec(&format!("{length}\r\nauthorization: Bearer other"), ECHO);
    assert_eq!(body_of(&said(&rig, &twice).await)["code"], "unauthenticated");
    let ids = "x-request-id: run-7\r\nx-request-id: a b";
    let forwarded = format!("GET /v1/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{ids}\r\n\r\n");
    assert_eq!(body_of(&said(&rig, &forwarded).await)["headers"]["x-request-id"], "run-7");
}

#[tokio::test]
async fn ids_are_compared_as_the_text_that_they_are() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let length = format!("content-length: {}", ECHO.len());
    for (id, code) in [
        ("sb%2d1", Value::Null),
        ("sb-1%00", "permission_denied".into()),
        ("..", "permission_denied".into()),
        ("sb-1%2f..%2fsb-1", "permission_denied".into()),
        ("%ff", "invalid_argument".into()),
    ] {
        let request = exec(&length, ECHO).replace("/sb-1/", &format!("/{id}/"));
        assert_eq!(body_of(&said(&rig, &request).await)["code"], code, "{id}");
    }
}
