//! The name in TLS has to be the one that was asked for, where rules are for names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::Server;
use support::tls::{ENCRYPTED, extension, hello, hello_and, hello_with};
use support::{Program, Relay, Rig, allows, denies, policy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::{Mode, Verdict};

/// The alert `access_denied`.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

async fn tunnel(relay: &Relay, target: &str) -> Program {
    let (program, head) = relay.connect(target).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    program
}

/// What a server gets of what a program sends, until either side ends.
async fn passed(relay: &Relay, server: &mut Server, target: &str, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut program = tunnel(relay, target).await;
    program.send(bytes).await;
    program.finish().await;
    let mut got = Vec::new();
    // A reset is no data either.
    drop(server.accept().await.read_to_end(&mut got).await);
    (got, program.rest_bytes().await)
}

#[tokio::test]
async fn a_tunnel_to_a_name_carries_tls_to_that_name_alone() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let relay = rig.sandbox("sb-1", &allows(&["a.test", "b.test"])).await;
    let target = format!("a.test:{}", server.port());
    for good in [
        hello("a.test"),
        hello("A.TEST"),
        [hello("a.test"), b"early data".to_vec()].concat(),
        b"SSH-2.0-x".to_vec(),
    ] {
        assert_eq!(passed(&relay, &mut server, &target, &good).await, (good, Vec::new()));
    }
    for bad in [
        hello("b.test"),
        hello("evil.test"),
        hello("127.0.0.2"),
        hello_with(&[]),
        hello_and("a.test", &extension(ENCRYPTED, &[0; 40])),
        hello_and("a.test", &hello("a.test")),
        [22, 3, 1, 0, 4, 1, 0, 0, 0].to_vec(),
    ] {
        assert_eq!(passed(&relay, &mut server, &target, &bad).await, (Vec::new(), ALERT.to_vec()), "{bad:?}");
    }
    rig.feed.attempt("a.test", Verdict::DeniedTls).await;
}

#[tokio::test]
async fn where_names_are_denied_addresses_need_a_name_in_their_tls_that_is_not() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let relay = rig.sandbox("sb-1", &denies(&["*.git.test"])).await;
    let target = server.address.to_string();
    let good = hello("a.test");
    assert_eq!(passed(&relay, &mut server, &target, &good).await.0, good);
    for bad in [hello("www.git.test"), hello_with(&[])] {
        assert_eq!(passed(&relay, &mut server, &target, &bad).await.0, b"");
    }
    // Without rules for names TLS is nobody's business.
    let free = rig.sandbox("sb-2", &policy("open", Mode::Open)).await;
    let any = hello("www.git.test");
    assert_eq!(passed(&free, &mut server, &target, &any).await.0, any);
}

#[tokio::test]
async fn a_server_that_speaks_first_is_heard_and_a_hello_in_pieces_is_read() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let relay = rig.sandbox("sb-1", &allows(&["a.test"])).await;
    let mut program = tunnel(&relay, &format!("a.test:{}", server.port())).await;
    let mut peer = server.accept().await;
    peer.write_all(b"SSH-2.0-server\r\n").await.unwrap();
    assert_eq!(program.exactly(16).await, b"SSH-2.0-server\r\n");
    let bytes = hello("a.test");
    for piece in bytes.chunks(7) {
        program.send(piece).await;
    }
    let mut got = vec![0; bytes.len()];
    peer.read_exact(&mut got).await.unwrap();
    assert_eq!(got, bytes);
}
