//! Ports of sandboxes through the gateway: HTTP by path and by host name, WebSockets, raw TCP and UDP, credentials.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use support::clock::Stopped;
use support::controlplane::LIMIT;
use support::{Answer, Rig, Started, token_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tungstenite::{Message, handshake};

const DOMAIN: &str = "ports.example.com";

/// A small part of the time for which a caller waits for a port to become public.
const STEP: Duration = Duration::from_millis(100);

/// A server on this machine that answers one connection after another with what `answer` makes of the request's head.
struct Server {
    port: u16,
    _task: JoinSet<()>,
}

impl Server {
    async fn answering<F: Future<Output = ()> + Send>(
        answer: impl Fn(TcpStream, String) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    head.push(byte);
                }
                answer(stream, String::from_utf8(head).unwrap()).await;
            }
        });
        Self { port, _task: task }
    }

    /// Answers with the head of the request.
    async fn mirror() -> Self {
        Self::answering(|mut stream: TcpStream, head: String| async move {
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Own: 1\r\n\r\n{head}", head.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await
    }

    /// Answers with this text.
    async fn saying(answer: &'static str) -> Self {
        Self::answering(move |mut stream: TcpStream, _: String| async move {
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await
    }
}

/// A port on which nothing listens; it is bound, so that no other server gets it meanwhile.
fn silent() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

async fn rig() -> Started {
    Rig::new().sandbox("sb-1").sandbox("sb-2").set("PORTS_DOMAIN", DOMAIN).start().await
}

fn token() -> String {
    token_of("sb-1", "alice", &["exec"])
}

fn path(port: u16, rest: &str) -> String {
    format!("/v1/sandboxes/sb-1/ports/{port}/http{rest}")
}

async fn get(rig: &Started, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = rig.client.request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    rig.client.send(request.body(Body::empty()).unwrap()).await
}

async fn authorized(rig: &Started, path: &str) -> Answer {
    rig.client.call(Method::GET, path, &token()).await
}

#[tokio::test]
async fn a_request_reaches_the_server_by_path_and_by_host_name() {
    let (rig, server) = (rig().await, Server::mirror().await);
    let by_path = authorized(&rig, &path(server.port, "/a/b%2Fc?x=1&y")).await;
    let host = format!("{}-sb-1.{DOMAIN}:7420", server.port);
    let bearer = format!("Bearer {}", token());
    let by_host = get(&rig, "/a/b%2Fc?x=1&y", &[("host", &host), ("authorization", &bearer)]).await;
    for (answer, prefix) in [(by_path, true), (by_host, false)] {
        assert_eq!((answer.status, &answer.headers["x-own"]), (StatusCode::OK, &"1".parse().unwrap()));
        let head = answer.text().to_ascii_lowercase();
        assert!(head.starts_with("get /a/b%2fc?x=1&y http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nhost: localhost:{}\r\n", server.port)), "{head}");
        assert!(!head.contains("x-forwarded-host") && !head.contains("x-forwarded-proto"), "{head}");
        assert!(
            head.contains("\r\nx-forwarded-for: 127.0.0.1\r\n") && head.contains("connection: close"),
            "{head}"
        );
        assert_eq!(head.contains("x-forwarded-prefix"), prefix);
        assert!(!head.contains("authorization") && !head.contains("bearer"), "{head}");
    }
    assert_eq!(rig.sidecar("sb-1").last_token(), format!("Bearer {}", token()));
}

#[tokio::test]
async fn only_names_below_the_domain_are_ports() {
    let rig = rig().await;
    let clock = Stopped::now().await;
    for (host, code) in [
        (format!("x-sb-1.{DOMAIN}"), "invalid_argument"),
        (format!("a.{DOMAIN}"), "invalid_argument"),
        (format!("80-sb-1.{DOMAIN}"), "unauthenticated"),
    ] {
        let (answer, _) = clock.until(STEP, get(&rig, "/healthz", &[("host", &host)])).await;
        assert_eq!(answer.code(), code, "{host}");
    }
    for host in [DOMAIN, "127.0.0.1", "80-sb-1.example.com"] {
        assert_eq!(get(&rig, "/healthz", &[("host", host)]).await.text(), "ok\n", "{host}");
    }
}

#[tokio::test]
async fn every_way_to_bring_a_token_works_and_none_reaches_the_server() {
    let (rig, server) = (rig().await, Server::mirror().await);
    let token = token();
    let cookie = format!("a=b; rollbox_token={token}");
    let own = ("authorization", "Bearer own");
    for headers in [
        vec![("x-rollbox-token", token.as_str()), own],
        vec![("cookie", cookie.as_str()), own],
        vec![("x-rollbox-token", "stale"), ("authorization", &format!("Bearer {token}"))],
    ] {
        let head = get(&rig, &path(server.port, "/"), &headers).await.text();
        assert!(head.starts_with("GET / ") && !head.contains(&token), "{head}");
        assert_eq!(head.contains("Bearer own"), headers.contains(&own), "{head}");
        assert_eq!(head.contains("a=b"), headers.iter().any(|(name, _)| *name == "cookie"), "{head}");
    }
    let kept = get(
        &rig,
        &path(server.port, "/x?a=1&rollbox_token=").replace("token=", &format!("token={token}")),
        &[],
    )
    .await;
    assert_eq!(kept.status, StatusCode::FOUND);
    assert_eq!(kept.headers["location"], path(server.port, "/x?a=1"));
    let cookie = kept.headers["set-cookie"].to_str().unwrap();
    let expected = format!("rollbox_token={token}; Path={}; HttpOnly; SameSite=Lax", path(server.port, "/"));
    assert_eq!(cookie, expected);
    // A request other than GET and HEAD is not redirected.
    let request =
        rig.client.request(Method::POST, &format!("{}?rollbox_token={token}", path(server.port, "/x")));
    let head = rig.client.send(request.body(Body::empty()).unwrap()).await.text();
    assert!(head.starts_with("POST /x HTTP/1.1\r\n"), "{head}");
}

#[tokio::test]
async fn who_has_no_token_of_this_sandbox_is_refused() {
    let (rig, server) = (rig().await, Server::mirror().await);
    let clock = Stopped::now().await;
    let other = token_of("sb-2", "bob", &["exec"]);
    for (credential, code) in [
        ("", "unauthenticated"),
        ("Bearer rbx_alice", "unauthenticated"),
        (&*format!("Bearer {other}"), "permission_denied"),
        (&*format!("Bearer {}", token_of("sb-1", "alice", &["port:80"])), "permission_denied"),
    ] {
        for path in [path(server.port, "/"), path(server.port, "/").replace("/http/", "")] {
            let headers: &[_] = if credential.is_empty() { &[] } else { &[("authorization", credential)] };
            let (answer, _) = clock.until(STEP, get(&rig, &path, headers)).await;
            assert_eq!(answer.code(), code, "{credential} {path}");
        }
    }
}

#[tokio::test]
async fn a_public_port_needs_no_token_until_it_is_taken_back() {
    let (rig, server, other) = (rig().await, Server::mirror().await, Server::mirror().await);
    rig.feed().open_ports("sb-1", &[server.port], 1);
    rig.client.until(async || get(&rig, &path(server.port, "/"), &[]).await.status == StatusCode::OK).await;
    assert_eq!(rig.sidecar("sb-1").last_token(), format!("Bearer port-token-{}", server.port));
    let clock = Stopped::now().await;
    let private = path(other.port, "/");
    assert_eq!(clock.until(STEP, get(&rig, &private, &[])).await.0.code(), "unauthenticated");
    // A token of another sandbox is ignored, and does not reach the server.
    let stray = token_of("sb-2", "bob", &["exec"]);
    let head =
        get(&rig, &path(server.port, "/"), &[("authorization", &format!("Bearer {stray}"))]).await.text();
    assert!(!head.contains(&stray));
    rig.feed().open_ports("sb-1", &[], 2);
    let public = path(server.port, "/");
    let answer = async || clock.until(STEP, get(&rig, &public, &[])).await.0;
    rig.client.until(async || answer().await.status == StatusCode::UNAUTHORIZED).await;
}

#[tokio::test]
async fn what_no_port_is_and_what_does_not_answer_in_http_are_told() {
    let rig = rig().await;
    for port in ["0", "65536", "http", "%31"] {
        let answer = authorized(&rig, &format!("/v1/sandboxes/sb-1/ports/{port}/http/")).await;
        assert_eq!(answer.code(), "invalid_argument", "{port}");
        assert_eq!(
            authorized(&rig, &format!("/v1/sandboxes/sb-1/ports/{port}")).await.code(),
            "invalid_argument"
        );
    }
    let (_taken, free) = silent();
    assert_eq!(authorized(&rig, &path(free, "/")).await.code(), "port_unreachable");
    for garbage in
        ["SSH-2.0-OpenSSH_9.6\r\n", "", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"]
    {
        let server = Server::saying(garbage).await;
        let answer = authorized(&rig, &path(server.port, "/")).await;
        assert_eq!(answer.code(), "port_unreachable", "{garbage:?}");
        assert_eq!(answer.json()["details"]["reason"], "no_http");
    }
}

#[tokio::test]
async fn two_ways_to_say_where_a_body_ends_never_reach_a_server() {
    let (rig, server) = (rig().await, Server::mirror().await);
    for (framing, expected) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", "HTTP/1.1 200"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", "HTTP/1.1 200"),
        ("Content-Length: 3\r\nContent-Length: 4", "HTTP/1.1 400"),
        ("Transfer-Encoding: chunked, identity", "HTTP/1.1 400"),
    ] {
        let mut stream = TcpStream::connect(rig.client.address).await.unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{framing}\r\n\r\n0\r\n\r\n",
            path(server.port, "/"),
            token()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(expected), "{framing}: {answer}");
        assert!(!answer.contains("content-length: 3"), "{framing}: {answer}");
    }
}

#[tokio::test]
async fn large_bodies_stream_both_ways_and_keep_their_framing() {
    const BYTES: usize = 32 << 20;
    // Before the rig starts: this blocks the runtime, so the fakes could not answer meanwhile.
    let data: Bytes = (0..BYTES).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let rig = rig().await;
    // Sends back what comes, as it comes.
    let server = Server::answering(|mut stream: TcpStream, head: String| async move {
        assert!(head.contains(&format!("content-length: {BYTES}\r\n")), "{head}");
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let (mut read, mut write) = stream.into_split();
        let _ = tokio::io::copy(&mut (&mut read).take(BYTES as u64), &mut write).await;
    })
    .await;
    let request = rig
        .client
        .request(Method::PUT, &path(server.port, "/"))
        .header("authorization", format!("Bearer {}", token()));
    let answer = rig.client.send(request.body(data.clone().into()).unwrap()).await;
    assert_eq!(answer.headers["content-length"], BYTES.to_string());
    assert!(answer.body == data);
}

#[tokio::test]
async fn events_come_one_by_one_and_a_client_that_goes_ends_them() {
    let rig = rig().await;
    let (gone, mut went) = tokio::sync::mpsc::channel(1);
    let server = Server::answering(move |mut stream: TcpStream, _: String| {
        let gone = gone.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let ended = stream.read_u8().await;
            gone.send(ended.is_err()).await.unwrap();
        }
    })
    .await;
    let request = rig
        .client
        .request(Method::GET, &path(server.port, "/"))
        .header("authorization", format!("Bearer {}", token()));
    let mut answer = rig.client.open(request.body(Body::empty()).unwrap()).await;
    let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "data: 1\n\n");
    drop(answer);
    assert!(tokio::time::timeout(LIMIT, went.recv()).await.unwrap().unwrap());
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn redirects_and_cookies_stay_with_the_port() {
    let rig = rig().await;
    let server = Server::saying(
        "HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: s=1; Path=/; Domain=example.com\r\n\
         Set-Cookie: rollbox_token=evil\r\nClear-Site-Data: \"*\"\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let answer = authorized(&rig, &path(server.port, "/x")).await;
    assert_eq!(answer.headers["location"], path(server.port, "/login"));
    let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, [format!("s=1; Path={}", path(server.port, "/")).as_str()]);
    assert!(!answer.headers.contains_key("clear-site-data"));
    let bare = authorized(&rig, &path(server.port, "?a=b")).await;
    assert_eq!(
        (bare.status, &bare.headers["location"]),
        (StatusCode::PERMANENT_REDIRECT, &path(server.port, "/?a=b").parse().unwrap())
    );
}

#[tokio::test]
async fn a_request_without_a_body_keeps_its_length() {
    let (rig, server) = (rig().await, Server::mirror().await);
    let bearer = format!("Bearer {}", token());
    for (method, length, expected) in [
        (Method::POST, Some("0"), true),
        (Method::POST, None, true),
        (Method::DELETE, Some("0"), true),
        (Method::GET, None, false),
    ] {
        let mut request =
            rig.client.request(method.clone(), &path(server.port, "/")).header("authorization", &bearer);
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let head = rig.client.send(request.body(Body::empty()).unwrap()).await.text().to_ascii_lowercase();
        assert_eq!(
            head.matches("\r\ncontent-length: 0\r\n").count(),
            usize::from(expected),
            "{method}: {head}"
        );
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
}

#[tokio::test]
async fn a_long_head_passes_and_one_that_is_too_long_is_told() {
    let rig = rig().await;
    for (headers, bytes, code) in [
        (300, 10, ""),
        (2, 60 << 10, ""),
        (2000, 1, "port_head_too_large"),
        (2, 200 << 10, "port_head_too_large"),
    ] {
        let server = Server::answering(move |mut stream: TcpStream, _: String| async move {
            let mut answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n".to_owned();
            for _ in 0..headers {
                answer += &format!("X-Much: {}\r\n", "x".repeat(bytes));
            }
            let _ = stream.write_all((answer + "\r\n").as_bytes()).await;
        })
        .await;
        // By hand: the client of these tests takes 100 headers.
        let head = format!("Host: x\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", token());
        let target = path(server.port, "/");
        let answer = exchanged(&rig, &format!("GET {target} HTTP/1.1\r\n{head}\r\n")).await;
        let passed = answer.to_ascii_lowercase().matches("x-much: ").count();
        assert_eq!(passed, if code.is_empty() { headers } else { 0 }, "{bytes}");
        assert_eq!(answer.contains(r#""retry":"never""#), !code.is_empty(), "{answer}");
        assert!(answer.contains(code), "{answer}");
    }
}

#[tokio::test]
async fn trailers_pass() {
    let rig = rig().await;
    let server = Server::saying(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\n\r\n",
    )
    .await;
    let head =
        format!("Host: x\r\nAuthorization: Bearer {}\r\nConnection: close, te\r\nTE: trailers\r\n", token());
    let answer = exchanged(&rig, &format!("GET {} HTTP/1.1\r\n{head}\r\n", path(server.port, "/"))).await;
    assert!(answer.to_ascii_lowercase().ends_with("0\r\nx-sum: 7\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_preflight_for_a_private_port_is_answered_without_the_server() {
    let (rig, server) = (rig().await, Server::mirror().await);
    let clock = Stopped::now().await;
    let request = rig
        .client
        .request(Method::OPTIONS, &path(server.port, "/"))
        .header("origin", "https://app.example.com")
        .header("access-control-request-method", "PUT")
        .header("access-control-request-headers", "x-rollbox-token");
    let (answer, _) = clock.until(STEP, rig.client.send(request.body(Body::empty()).unwrap())).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example.com"),
        ("access-control-allow-methods", "PUT"),
        ("access-control-allow-headers", "x-rollbox-token"),
    ] {
        assert_eq!(answer.headers[name], value, "{name}");
    }
    assert!(!answer.headers.contains_key("access-control-allow-credentials"));
}

#[tokio::test]
async fn braces_and_bars_in_a_query_reach_the_server() {
    let (rig, server) = (rig().await, Server::mirror().await);
    for query in ["q={a:[1]}", "q=a|b^c`", "{"] {
        let target = path(server.port, &format!("/?{query}"));
        let head = format!("Host: x\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", token());
        let answer = exchanged(&rig, &format!("GET {target} HTTP/1.1\r\n{head}\r\n")).await;
        assert!(answer.contains(&format!("GET /?{query} HTTP/1.1")), "{query}: {answer}");
    }
}

/// What comes back for these bytes, until the gateway closes.
async fn exchanged(rig: &Started, request: &str) -> String {
    let mut stream = TcpStream::connect(rig.client.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_port_is_asked_for_and_waited_for() {
    let (rig, server) = (rig().await, Server::mirror().await);
    let (_taken, free) = silent();
    for (port, listening) in [(server.port, true), (free, false)] {
        let answer = authorized(&rig, &format!("/v1/sandboxes/sb-1/ports/{port}?wait_ms=10")).await;
        assert_eq!(answer.json(), json!({"port": port, "listening": listening}));
    }
    let wrong = authorized(&rig, "/v1/sandboxes/sb-1/ports/80?wait=1").await;
    assert_eq!(wrong.code(), "invalid_argument");
    // The control plane decides which ports are public, so these methods are forwarded.
    for method in [Method::POST, Method::DELETE] {
        let answer = rig.client.call(method.clone(), "/v1/sandboxes/sb-1/ports/80", "key").await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::NOT_FOUND, 0), "the fake's own answer");
    }
}

// ---- WebSockets ----

type Socket = tokio_tungstenite::WebSocketStream<TcpStream>;

async fn connect(rig: &Started, path: &str) -> Result<Socket, tungstenite::Error> {
    let stream = TcpStream::connect(rig.client.address).await.unwrap();
    let request = Request::get(format!("ws://{}{path}", rig.client.address))
        .header("host", rig.client.address.to_string())
        .header("authorization", format!("Bearer {}", token()))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", handshake::client::generate_key())
        .body(())
        .unwrap();
    tokio_tungstenite::client_async(request, stream).await.map(|(socket, _)| socket)
}

async fn refused(rig: &Started, path: &str) -> Value {
    match connect(rig, path).await {
        Err(tungstenite::Error::Http(answer)) => {
            serde_json::from_slice(answer.body().as_ref().unwrap()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn raw(port: u16, kind: &str) -> String {
    format!("/v1/sandboxes/sb-1/ports/{port}/{kind}")
}

async fn next(socket: &mut Socket) -> Message {
    let said = async {
        loop {
            let message = socket.next().await.unwrap().unwrap();
            if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
                return message;
            }
        }
    };
    tokio::time::timeout(LIMIT, said).await.unwrap()
}

fn close_code(message: Message) -> u16 {
    match message {
        Message::Close(Some(frame)) => frame.code.into(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_websocket_of_the_server_passes_through() {
    let rig = rig().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (stream, _) = server.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let mut socket = connect(&rig, &path(port, "/socket")).await.unwrap();
    for message in [Message::text("hello"), Message::binary(vec![7; 1 << 20])] {
        socket.send(message.clone()).await.unwrap();
        assert!(next(&mut socket).await == message);
    }
    rig.client.until_metric("calls", 1.0).await;
    socket.close(None).await.unwrap();
    assert!(tasks.join_next().await.unwrap().is_ok());
    drop(socket);
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn tcp_passes_as_messages_and_each_side_ends_by_itself() {
    let rig = rig().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let mut socket = connect(&rig, &raw(port, "tcp")).await.unwrap();
    let (mut peer, _) = server.accept().await.unwrap();
    socket.send(Message::binary(&b"question"[..])).await.unwrap();
    socket.send(Message::text(r#"{"type":"eof"}"#)).await.unwrap();
    let mut all = Vec::new();
    peer.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"question");
    peer.write_all(b"answer").await.unwrap();
    drop(peer);
    assert_eq!(next(&mut socket).await, Message::binary(&b"answer"[..]));
    assert_eq!(next(&mut socket).await, Message::text(r#"{"type":"eof"}"#));
    assert_eq!(close_code(next(&mut socket).await), 1000);
}

#[tokio::test]
async fn udp_passes_a_datagram_a_message() {
    let rig = rig().await;
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut socket = connect(&rig, &raw(server.local_addr().unwrap().port(), "udp")).await.unwrap();
    let mut buffer = [0; 64];
    for size in [1, 0, 9] {
        socket.send(Message::binary(vec![1; size])).await.unwrap();
        let (count, peer) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!(count, size);
        server.send_to(&buffer[..size], peer).await.unwrap();
        assert_eq!(next(&mut socket).await.into_data().len(), size);
    }
}

#[tokio::test]
async fn raw_connections_are_refused_before_and_told_after_the_upgrade() {
    let rig = rig().await;
    let (_taken, free) = silent();
    assert_eq!(refused(&rig, &raw(free, "tcp")).await["code"], "port_unreachable");
    assert_eq!(refused(&rig, &raw(0, "tcp")).await["code"], "invalid_argument");
    assert_eq!(authorized(&rig, &raw(free, "tcp")).await.code(), "invalid_argument");

    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    for (wrong, code) in [
        (Message::text("hello"), 1002),
        (Message::text(r#"{"type":"eof","x":1}"#), 1002),
        (Message::binary(vec![0; (256 << 10) + 1]), 1009),
    ] {
        let mut socket = connect(&rig, &raw(port, "tcp")).await.unwrap();
        // A message that is too large may break the connection while it is still being sent.
        drop(socket.send(wrong).await);
        let problem: Value = serde_json::from_str(next(&mut socket).await.to_text().unwrap()).unwrap();
        assert_eq!(problem["type"], "problem");
        assert_eq!(close_code(next(&mut socket).await), code);
    }
}

#[tokio::test]
async fn the_sandboxs_end_is_the_last_message() {
    let rig = rig().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut socket = connect(&rig, &raw(server.local_addr().unwrap().port(), "tcp")).await.unwrap();
    rig.feed().end("sb-1", 1, "oom_killed");
    let problem: Value = serde_json::from_str(next(&mut socket).await.to_text().unwrap()).unwrap();
    assert_eq!((&problem["type"], &problem["code"]), (&json!("problem"), &json!("oom_killed")));
    assert_eq!(close_code(next(&mut socket).await), 1000);
}

#[tokio::test]
async fn at_the_end_of_the_drain_connections_are_told_to_come_again() {
    let mut rig = Rig::new().sandbox("sb-1").set("DRAIN_MS", 50).start().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut socket = connect(&rig, &raw(server.local_addr().unwrap().port(), "tcp")).await.unwrap();
    // What is left one second after the drain is aborted; on the stopped clock that second never passes.
    let clock = Stopped::now().await;
    let stopping = tokio::spawn(rig.running.take().unwrap().stop());
    rig.client.until_metric("draining", 1.0).await;
    clock.pass(Duration::from_millis(100)).await;
    assert_eq!(close_code(next(&mut socket).await), 1012);
    drop(socket);
    stopping.await.unwrap();
}

#[tokio::test]
async fn connections_are_bounded() {
    let rig = Rig::new()
        .sandbox("sb-1")
        .set("MAX_PORT_CONNECTIONS_PER_SANDBOX", 2)
        .set("QUEUE_TIMEOUT_MS", 50)
        .start()
        .await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let held =
        [connect(&rig, &raw(port, "tcp")).await.unwrap(), connect(&rig, &raw(port, "tcp")).await.unwrap()];
    let problem = refused(&rig, &raw(port, "tcp")).await;
    assert_eq!(problem["code"], "capacity_unavailable");
    assert!(problem["details"]["knob"].as_str().unwrap().contains("MAX_PORT_CONNECTIONS_PER_SANDBOX"));
    // Execs have permits of their own.
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    drop(held);
    let waited =
        tokio::time::timeout(LIMIT, async { while connect(&rig, &raw(port, "tcp")).await.is_err() {} });
    waited.await.unwrap();
}
