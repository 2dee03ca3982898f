use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::*;
use crate::settings::tests::settings;
use clock::Stopped;

#[path = "../../tests/support/clock.rs"]
#[allow(dead_code, reason = "the integration tests use all of it")]
mod clock;

/// A server for this many connections, on a port of its own; its accept loop ends with the runtime of the test.
async fn server(places: usize) -> (Arc<Server>, std::net::SocketAddr) {
    let server = Server::with_places(&Arc::new(Gateway::new(settings()).unwrap()), places);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Arc::clone(&server).accept(listener, None));
    (server, address)
}

/// Sends `bytes` and waits until the server closes; returns what the server sent and how long that took.
async fn closed(address: std::net::SocketAddr, bytes: &[u8]) -> (String, Duration) {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    (String::from_utf8(said).unwrap(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_given_up() {
    let (_server, address) = server(8).await;
    for bytes in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let (said, took) = closed(address, bytes).await;
        assert_eq!(said, "");
        assert!((PREFACE_TIMEOUT..PREFACE_TIMEOUT * 2).contains(&took), "{took:?}");
    }
}

#[tokio::test]
async fn a_client_that_never_ends_its_head_is_given_up() {
    const SECOND: Duration = Duration::from_secs(1);
    let (_server, address) = server(8).await;
    let clock = Stopped::now().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The answer to the first head shows that the second one is being read.
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
    stream.write_all(b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    clock.pass(HEAD_TIMEOUT - SECOND).await;
    assert_eq!(stream.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    clock.pass(2 * SECOND).await;
    assert!(stream.read_to_end(&mut Vec::new()).await.is_ok());
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_why() {
    let (_server, address) = server(8).await;
    let long = format!("GET /{} HTTP/1.1", "x".repeat(70 << 10));
    let many = format!("GET / HTTP/1.1\r\n{}host: x", "x: y\r\n".repeat(101));
    for (head, status, code) in [
        ("GET /?a=\"b\" HTTP/1.1", "400 Bad Request", "invalid_argument"),
        ("GET /?a=<b> HTTP/1.1", "400 Bad Request", "invalid_argument"),
        ("GET / HTTP/1.1\r\nno header", "400 Bad Request", "invalid_argument"),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1", "400 Bad Request", "invalid_argument"),
        (&long, "413 Payload Too Large", "payload_too_large"),
        (&many, "413 Payload Too Large", "payload_too_large"),
    ] {
        // The first request on a connection, and one after another.
        for before in ["", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(before.as_bytes()).await.unwrap();
            if !before.is_empty() {
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            }
            let mut said = Vec::new();
            // The end of what is too long is not read, which breaks the connection after the answer.
            drop(stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await);
            drop(stream.read_to_end(&mut said).await);
            let said = String::from_utf8(said).unwrap();
            let (answer, body) = said.split_once("\r\n\r\n").unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
            assert!(answer.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{answer}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["code"], code);
            assert!(answer.contains(&format!("\r\nx-request-id: {}", body["request_id"].as_str().unwrap())));
        }
    }
}

#[tokio::test]
async fn requests_that_come_at_once_are_told_of_the_one_that_cannot_be_read() {
    let (_server, address) = server(8).await;
    let good = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let (said, _) = closed(address, format!("{good}{good}GET /?\" HTTP/1.1\r\n\r\n").as_bytes()).await;
    assert_eq!(
        (said.matches("HTTP/1.1 200 OK").count(), said.matches("HTTP/1.1 400 ").count()),
        (2, 1),
        "{said}"
    );
    let body: serde_json::Value = serde_json::from_str(said.rsplit_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["code"], "invalid_argument");
}

#[tokio::test]
async fn bytes_of_an_answer_that_look_like_such_a_refusal_pass() {
    const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (inside, mut outside) = tokio::io::duplex(4096);
    let turn = Turn::default();
    let mut stream = explained(inside, turn.clone());
    turn.begin();
    let answer = turn.answer();
    stream.write_all(REFUSAL).await.unwrap();
    stream.flush().await.unwrap();
    stream.write_all(REFUSAL).await.unwrap();
    // Its end may still wait to be written.
    drop(answer);
    stream.write_all(REFUSAL).await.unwrap();
    stream.flush().await.unwrap();
    let mut passed = vec![0; 3 * REFUSAL.len()];
    outside.read_exact(&mut passed).await.unwrap();
    assert_eq!(passed, REFUSAL.repeat(3));
    stream.write_all(REFUSAL).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut explained = String::new();
    outside.read_to_string(&mut explained).await.unwrap();
    assert!(explained.contains("\"code\":\"invalid_argument\""), "{explained}");
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_at_once_and_counted() {
    let (server, address) = server(1).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(first.read(&mut [0; 1024]).await.unwrap() > 0);
    let mut second = TcpStream::connect(address).await.unwrap();
    assert_eq!(second.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(server.metrics.refused_connections.get(), 1);
    drop(first);
    server.close(Duration::from_secs(1)).await;
    assert_eq!(server.places.available_permits(), 1);
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_by_the_kernel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    tune(&stream).unwrap();
    assert!(sockopt::socket_keepalive(&stream).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBE_INTERVAL);
    assert_eq!(u128::from(sockopt::tcp_user_timeout(&stream).unwrap()), UNHEARD.as_millis());
}
