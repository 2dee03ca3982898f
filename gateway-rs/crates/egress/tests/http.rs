//! Requests in absolute form, and what a proxy must not pass on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::{Server, head};
use support::{Relay, Rig, allows};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::Verdict;

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x-hop\r\nx-hop: 1\r\nx-end: 1\r\n\r\nhello";

async fn rig() -> (Rig, Relay, Server) {
    let (rig, server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let relay = rig.sandbox("sb-1", &allows(&["a.test", "b.test"])).await;
    (rig, relay, server)
}

#[tokio::test]
async fn a_request_is_forwarded_for_its_path_without_what_is_for_the_proxy() {
    let (rig, relay, mut server) = rig().await;
    let port = server.port();
    let mut program = relay.program().await;
    let request = format!(
        "GET http://A.test:{port}/simple/?q=1 HTTP/1.1\r\nHost: a.test:{port}\r\nProxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic eA==\r\nConnection: x-secret\r\nX-Secret: 1\r\nAccept: */*\r\n\r\n"
    );
    program.send(request.as_bytes()).await;
    let got = server.answer(ANSWER).await.to_lowercase();
    assert!(got.starts_with("get /simple/?q=1 http/1.1\r\n"), "{got}");
    assert!(got.contains(&format!("host: a.test:{port}\r\n")) && got.contains("accept: */*"), "{got}");
    assert!(!got.contains("proxy-") && !got.contains("x-secret"), "{got}");
    let answer = program.head().await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("x-end: 1") && !answer.contains("x-hop"),
        "{answer}"
    );
    assert_eq!(program.exactly(5).await, b"hello");
    let told = rig.feed.attempt_with(|attempt| attempt.duration_ms > 0).await;
    assert_eq!((told.protocol.as_str(), told.rule.as_str()), ("http", "rule a.test"));
    assert!(told.sent_bytes > 0 && told.received_bytes > 0);
    // The next one on the same connection of the program is decided on by itself.
    program.send(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert!(program.head().await.starts_with("HTTP/1.1 403"));
    rig.feed.attempt("evil.test", Verdict::DeniedName).await;
}

#[tokio::test]
async fn the_query_of_an_address_without_a_path_is_forwarded() {
    let (_rig, relay, mut server) = rig().await;
    let port = server.port();
    let mut program = relay.program().await;
    let request = format!("GET http://a.test:{port}?q=1 HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n");
    program.send(request.as_bytes()).await;
    assert!(server.answer(ANSWER).await.starts_with("GET /?q=1 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_body_is_forwarded_both_ways_whatever_its_framing() {
    let (_rig, relay, mut server) = rig().await;
    let port = server.port();
    let mut program = relay.program().await;
    let request = format!(
        "POST http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nTransfer-Encoding: chunked\r\n\
         Expect: 100-continue\r\n\r\n"
    );
    program.send(request.as_bytes()).await;
    let mut peer = server.accept().await;
    assert!(head(&mut peer).await.to_lowercase().contains("transfer-encoding: chunked"));
    assert!(program.head().await.starts_with("HTTP/1.1 100"));
    program.send(b"4\r\ndata\r\n0\r\n\r\n").await;
    let mut body = [0; 14];
    peer.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"4\r\ndata\r\n0\r\n\r\n");
    peer.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").await.unwrap();
    drop(peer);
    let head = program.head().await.to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
    assert_eq!(program.exactly(4).await, b"D\r\nu");
}

/// What a server could understand otherwise than this proxy does is refused before anything is resolved.
#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let (rig, relay, mut server) = rig().await;
    for (request, why) in [
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "origin form"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", "another host"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: a.test:81\r\n\r\n", "another port"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", "two hosts"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n", "a list of hosts"),
        ("GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "https in absolute form"),
        ("GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "another scheme"),
        ("GET http://b.test@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "a user name"),
        ("GET http://a.test:80:80/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two ports"),
        ("GET http://a.test:99999/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "a port out of range"),
        ("GET http:///etc/passwd HTTP/1.1\r\nHost: a.test\r\n\r\n", "no host"),
        ("CONNECT a.test HTTP/1.1\r\nHost: a.test\r\n\r\n", "no port"),
        ("CONNECT a.test:0 HTTP/1.1\r\nHost: a.test\r\n\r\n", "port 0"),
        ("CONNECT a.test:65536 HTTP/1.1\r\n\r\n", "a port out of range"),
        ("CONNECT b.test@a.test:443 HTTP/1.1\r\n\r\n", "a user name"),
        ("CONNECT http://a.test:443/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "absolute form"),
        ("CONNECT a.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "another host"),
        ("CONNECT a.test:443/path HTTP/1.1\r\nHost: a.test\r\n\r\n", "a path"),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            "two lengths",
        ),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, x\r\n\r\n",
            "an unknown framing",
        ),
        ("GET http://a.test/\x0b HTTP/1.1\r\nHost: a.test\r\n\r\n", "a control character"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: a\0b\r\n\r\n", "a NUL in a header"),
        ("GET http://a.test/ HTTP/1.1\r\nHost : a.test\r\n\r\n", "a space before the colon"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n X: folded\r\n\r\n", "a folded line"),
        ("GET http://a.test/ HTTP/2.0\r\nHost: a.test\r\n\r\n", "another version"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
        ("\x16\x03\x01\x02\x00\x01", "TLS"),
        ("\x04\x01\x00\x50\x7f\x00\x00\x01\x00", "SOCKS4"),
    ] {
        let mut program = relay.program().await;
        program.send(request.as_bytes()).await;
        program.finish().await;
        let answer = program.rest().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{why}: {answer}");
    }
    assert!(server.is_untouched());
    assert_eq!(rig.names.asked(), [""; 0]);
}

/// Bytes behind a request are another request to this proxy, never a second one to its server.
#[tokio::test]
async fn nothing_is_smuggled_behind_a_request() {
    let (rig, relay, mut server) = rig().await;
    let port = server.port();
    let both = format!(
        "POST http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    );
    let mut program = relay.program().await;
    program.send(both.as_bytes()).await;
    let mut peer = server.accept().await;
    let got = head(&mut peer).await.to_lowercase();
    assert!(!got.contains("content-length") && !got.contains("evil"), "{got}");
    peer.write_all(ANSWER.as_bytes()).await.unwrap();
    let mut more = Vec::new();
    drop(program);
    peer.read_to_end(&mut more).await.unwrap();
    assert_eq!(more, b"0\r\n\r\n");
    assert!(!rig.names.asked().contains(&"evil.test".to_owned()));
}

#[tokio::test]
async fn a_server_that_answers_no_http_is_a_502() {
    let (rig, relay, mut server) = rig().await;
    let port = server.port();
    let mut program = relay.program().await;
    program
        .send(format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n").as_bytes())
        .await;
    drop(server.answer("SSH-2.0-x\r\n\r\n").await);
    assert!(program.head().await.starts_with("HTTP/1.1 502"));
    rig.feed.attempt("a.test", Verdict::Unreachable).await;
}
