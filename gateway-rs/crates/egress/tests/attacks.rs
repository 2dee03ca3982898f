//! What hostile code in a sandbox tries: every way is counted, and none may reach the server that it is for.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::Server;
use support::{Relay, Rig, denies, limited, policy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::{Limits, Mode, Verdict};

/// Among the platform's own ranges.
const INSIDE: &str = "127.32.0.2";

/// Asks in all three protocols; returns how many were let through.
async fn tried(relay: &Relay, host: &str, port: u16) -> usize {
    let mut succeeded = 0;
    let (_, head) = relay.connect(&format!("{host}:{port}")).await;
    succeeded += usize::from(head.starts_with("HTTP/1.1 200"));
    let mut program = relay.program().await;
    program
        .send(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").as_bytes())
        .await;
    succeeded += usize::from(program.head().await.starts_with("HTTP/1.1 200"));
    let bare = host.trim_matches(['[', ']']);
    let length = [u8::try_from(bare.len()).unwrap()];
    let request = [&[5, 1, 0, 5, 1, 0, 3][..], &length, bare.as_bytes(), &port.to_be_bytes()].concat();
    let mut program = relay.program().await;
    program.send(&request).await;
    succeeded + usize::from(program.rest_bytes().await.get(3) == Some(&0))
}

#[tokio::test]
async fn no_notation_of_an_address_reaches_the_inside() {
    let (rig, mut server) = (Rig::start().await, Server::listen(INSIDE).await);
    let relay = rig.sandbox("sb-1", &policy("open", Mode::Open)).await;
    let hosts = [
        "127.32.0.2",
        "127.32.0.2.",
        "127.32.2",
        "2132803586",
        "0x7f200002",
        "0x7f.0x20.0.2",
        "0177.040.0.2",
        "0177.32.0.02",
        "127.0x20.2",
        "[::ffff:127.32.0.2]",
        "[::ffff:7f20:2]",
        "[0:0:0:0:0:ffff:7f20:0002]",
        "[::127.32.0.2]",
        "[64:ff9b::7f20:2]",
        "[2002:7f20:2::]",
        "[::ffff:0:7f20:2]",
        "[::1]",
        "[::]",
        "[fe80::1%25lo]",
        "0.0.0.0",
        "0",
        "127.32.0.2%00.test",
        "user@127.32.0.2",
        "a.test@127.32.0.2",
        "127.32.0.2#.test",
        "127.32.0.2\\@a.test",
        "127\u{3002}32.0.2",
        "\u{ff11}27.32.0.2",
        "localhost",
        "LOCALHOST.",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00:ec2::254]",
    ];
    let mut succeeded = 0;
    for host in hosts {
        succeeded += tried(&relay, host, server.port()).await;
    }
    assert_eq!((hosts.len() * 3, succeeded), (99, 0));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn no_name_reaches_the_inside_however_it_resolves() {
    let (rig, mut server) = (Rig::start().await, Server::listen(INSIDE).await);
    let outside = Server::listen("127.0.0.2").await;
    rig.names.set("inside.test", &[&[INSIDE]]);
    rig.names.set("mixed.test", &[&["10.0.0.1", INSIDE, "169.254.169.254"]]);
    let many: Vec<String> = (1..60).map(|last| format!("127.32.0.{last}")).collect();
    rig.names.set("many.test", &[&many.iter().map(String::as_str).collect::<Vec<_>>()]);
    rig.names.set("rebinds.test", &[&["127.0.0.2"], &[INSIDE]]);
    let relay = rig.sandbox("sb-1", &policy("open", Mode::Open)).await;
    for name in ["inside.test", "mixed.test", "many.test"] {
        assert_eq!(tried(&relay, name, server.port()).await, 0, "{name}");
    }
    // The first answer is checked and dialled; the second, had it been dialled, would be the inside.
    let target = format!("rebinds.test:{}", outside.port());
    assert!(relay.connect(&target).await.1.starts_with("HTTP/1.1 200"));
    assert!(relay.connect(&target).await.1.starts_with("HTTP/1.1 403"));
    assert!(server.is_untouched());
    rig.feed.attempt("many.test", Verdict::DeniedAddress).await;
}

#[tokio::test]
async fn a_denied_name_is_not_reached_by_another_way_to_write_it() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    for name in ["git.test", "www.git.test"] {
        rig.names.set(name, &[&["127.0.0.2"]]);
    }
    let relay = rig.sandbox("sb-1", &denies(&["git.test", "*.git.test"])).await;
    for host in [
        "git.test",
        "GIT.TEST",
        "git.test.",
        "git.test..",
        "www.git.test",
        "a.b.WWW.git.test.",
        "git.test%2e",
        "git%2etest",
    ] {
        assert_eq!(tried(&relay, host, server.port()).await, 0, "{host}");
    }
    assert!(server.is_untouched());
    assert_eq!(rig.names.asked(), [""; 0]);
}

#[tokio::test]
async fn a_flood_of_connections_ends_at_the_limit_and_others_are_served() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let target = server.address.to_string();
    let limits = Limits { connections: 8, ..Limits::default() };
    let relay = rig.sandbox("sb-1", &limited(policy("open", Mode::Open), limits)).await;
    let other = rig.sandbox("sb-2", &policy("open", Mode::Open)).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(relay.connect(&target).await.0);
        server.accept().await;
    }
    for _ in 0..40 {
        let (mut program, head) = relay.connect(&target).await;
        assert!(head.starts_with("HTTP/1.1 403") && program.rest().await.contains("limits/connections"));
    }
    assert!(other.connect(&target).await.1.starts_with("HTTP/1.1 200"));
    let told = rig.feed.attempt("127.0.0.2", Verdict::DeniedLimit).await;
    assert_eq!((told.rule.as_str(), told.policy.as_str()), ("limits/connections", "open"));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_its_server_alone() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let relay = rig.sandbox("sb-1", &policy("open", Mode::Open)).await;
    let (_slow, _) = relay.connect(&server.address.to_string()).await;
    let mut stuck = server.accept().await;
    // More than every buffer on the way holds: the write does not end.
    let all = vec![7; 64 << 20];
    let mut writing = Box::pin(stuck.write_all(&all));
    tokio::select! {
        done = &mut writing => panic!("all of it was taken: {done:?}"),
        () = async {
            let (mut program, _) = relay.connect(&server.address.to_string()).await;
            let mut peer = server.accept().await;
            program.send(b"ping").await;
            let mut got = [0; 4];
            peer.read_exact(&mut got).await.unwrap();
            peer.write_all(&got).await.unwrap();
            assert_eq!(program.exactly(4).await, b"ping");
        } => {}
    }
}

#[tokio::test]
async fn heads_without_an_end_are_refused() {
    let rig = Rig::start().await;
    let relay = rig.sandbox("sb-1", &policy("open", Mode::Open)).await;
    let long = format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(200 << 10));
    let many = format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "X: 1\r\n".repeat(500));
    for request in [long, many] {
        let mut program = relay.program().await;
        // The proxy may have closed before all was sent.
        drop(program.0.write_all(request.as_bytes()).await);
        let answer = program.rest().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    assert_eq!(rig.names.asked(), [""; 0]);
}
