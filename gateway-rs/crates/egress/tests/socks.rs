//! SOCKS5.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::Server;
use support::{Program, Relay, Rig, allows, any_port, rule};
use tokio::io::AsyncReadExt as _;
use wire::egress::{Policy, Verdict};

async fn rig() -> (Rig, Relay, Server) {
    let (rig, server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let mut policy = allows(&["a.test"]);
    policy.allow.push(any_port(rule("127.0.0.2/32")));
    let relay = rig.sandbox("sb-1", &policy).await;
    (rig, relay, server)
}

fn request(host: &[u8], port: u16) -> Vec<u8> {
    let length = [u8::try_from(host.len()).unwrap()];
    [&[5, 1, 0, 3][..], &length, host, &port.to_be_bytes()].concat()
}

/// The program, and the code of the answer.
async fn asked(relay: &Relay, request: &[u8]) -> (Program, u8) {
    let mut program = relay.program().await;
    program.send(&[&[5, 2, 2, 0][..], request].concat()).await;
    assert_eq!(program.exactly(2).await, [5, 0]);
    let answer = program.exactly(10).await;
    (program, answer[1])
}

#[tokio::test]
async fn names_and_addresses_are_connected_to() {
    let (rig, relay, mut server) = rig().await;
    let port = server.port();
    let by_address = [&[5, 1, 0, 1, 127, 0, 0, 2][..], &port.to_be_bytes()].concat();
    for request in [request(b"A.test.", port), request(b"127.0.0.2", port), by_address] {
        let (mut program, code) = asked(&relay, &[&request[..], b"early"].concat()).await;
        assert_eq!(code, 0);
        let mut peer = server.accept().await;
        let mut got = [0; 5];
        peer.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"early");
        drop(peer);
        assert_eq!(program.rest().await, "");
    }
    let told = rig.feed.attempt_with(|attempt| attempt.duration_ms > 0 && attempt.host == "a.test").await;
    assert_eq!((told.protocol.as_str(), told.sent_bytes), ("socks5", 5));
}

#[tokio::test]
async fn refusals_have_their_codes() {
    let (rig, relay, mut server) = rig().await;
    rig.names.set("gone.test", &[&[]]);
    for (request, code) in [
        (request(b"evil.test", 443), 2),
        (request(b"127.1", 80), 2),
        (vec![5, 1, 0, 1, 127, 0, 0, 9, 0, 80], 2),
        (request(b"", 80), 1),
        (request(b"a.test", 0), 1),
        (request(b"a\0.test", 80), 1),
        (vec![5, 2, 0, 1, 127, 0, 0, 2, 0, 80], 7),
        (vec![5, 3, 0, 1, 127, 0, 0, 2, 0, 80], 7),
        (vec![5, 1, 0, 9, 1, 1, 1, 1, 0, 80], 8),
    ] {
        let (mut program, told) = asked(&relay, &request).await;
        assert_eq!((told, program.rest().await.as_str()), (code, ""), "{request:?}");
    }
    assert!(server.is_untouched());
    assert_eq!(rig.names.asked(), [""; 0]);
    rig.feed.attempt("evil.test", Verdict::DeniedName).await;
    let other = rig.sandbox("sb-2", &Policy { allow: vec![rule("gone.test")], ..allows(&[]) }).await;
    assert_eq!(asked(&other, &request(b"gone.test", 80)).await.1, 4);
}

#[tokio::test]
async fn a_client_that_wants_a_password_is_told() {
    let (_rig, relay, _server) = rig().await;
    let mut program = relay.program().await;
    program.send(&[5, 1, 2]).await;
    assert_eq!(program.rest_bytes().await, [5, 0xff]);
}
