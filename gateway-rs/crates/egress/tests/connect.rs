//! `CONNECT`: decisions by name and address, tunnels, and what is told about them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::Server;
use support::{Rig, allows, denies, offline, policy, rule};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::{Mode, Policy, Verdict};

#[tokio::test]
async fn an_allowed_name_is_resolved_and_reached_and_told() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let relay = rig.sandbox("sb-1", &allows(&["a.test"])).await;
    assert_eq!(relay.calls.came.lock().unwrap()[0].0, "token-sb-1");
    let (mut program, head) = relay.connect(&format!("A.test.:{}", server.port())).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut peer = server.accept().await;
    program.send(b"ping").await;
    let mut got = [0; 4];
    peer.read_exact(&mut got).await.unwrap();
    peer.write_all(b"pong!").await.unwrap();
    assert_eq!((&got, program.exactly(5).await.as_slice()), (b"ping", &b"pong!"[..]));
    // Each side ends on its own.
    program.finish().await;
    assert_eq!(peer.read(&mut got).await.unwrap(), 0);
    peer.write_all(b"last").await.unwrap();
    drop(peer);
    assert_eq!(program.rest().await, "last");
    let told = rig.feed.attempt_with(|attempt| attempt.duration_ms > 0).await;
    assert_eq!(
        (told.host.as_str(), told.address.as_str(), told.rule.as_str()),
        ("a.test", "127.0.0.2", "rule a.test")
    );
    assert_eq!((told.sent_bytes, told.received_bytes, told.protocol.as_str()), (4, 9, "connect"));
    let began = rig.feed.attempt_with(|attempt| attempt.duration_ms == 0).await;
    assert_eq!((began.verdict(), began.sent_bytes), (Verdict::Allowed, 0));
}

#[tokio::test]
async fn a_refusal_names_policy_and_rule_and_the_name_is_never_resolved() {
    let rig = Rig::start().await;
    let relay = rig.sandbox("sb-1", &allows(&["a.test"])).await;
    let answer = relay.ask("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n").await;
    // What most programs show of an answer is its first line.
    let line = "HTTP/1.1 403 evil.test:443: no rule of the policy packages allows this host and port; \
                await sandbox.egress(POLICY), or rollbox egress set SANDBOX POLICY\r\n";
    assert!(answer.starts_with(line), "{answer}");
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["code"], "egress_denied");
    assert_eq!(
        (&body["details"]["policy"], &body["details"]["verdict"]),
        (&"packages".into(), &"denied_name".into())
    );
    assert!(body["details"]["knob"].as_str().unwrap().contains("sandbox.egress"));
    assert!(rig.names.asked().is_empty());
    let told = rig.feed.attempt("evil.test", Verdict::DeniedName).await;
    assert_eq!((told.port, told.policy.as_str(), told.count), (443, "packages", 1));
}

#[tokio::test]
async fn a_denial_wins_whatever_is_allowed() {
    let rig = Rig::start().await;
    let both = Policy { deny: vec![rule("evil.a.test")], ..allows(&["*.a.test"]) };
    let relay = rig.sandbox("sb-1", &both).await;
    let (_, head) = relay.connect("evil.a.test:443").await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert_eq!(rig.feed.attempt("evil.a.test", Verdict::DeniedName).await.rule, "rule evil.a.test");
}

#[tokio::test]
async fn offline_allows_nothing_and_open_all_but_what_is_denied() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let target = format!("a.test:{}", server.port());
    let relay = rig.sandbox("sb-1", &offline()).await;
    assert!(relay.connect(&target).await.1.starts_with("HTTP/1.1 403"));
    assert!(server.is_untouched());
    let other = rig.sandbox("sb-2", &denies(&["*.git.test", "git.test"])).await;
    assert!(other.connect(&target).await.1.starts_with("HTTP/1.1 200"));
    assert!(other.connect("www.git.test:443").await.1.starts_with("HTTP/1.1 403"));
    let address = format!("{}", server.address);
    assert!(other.connect(&address).await.1.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn names_that_do_not_resolve_and_servers_that_are_not_there_are_a_502() {
    let rig = Rig::start().await;
    let relay = rig.sandbox("sb-1", &policy("open", Mode::Open)).await;
    let free = Server::listen("127.0.0.3").await.address;
    let (mut program, head) = relay.connect("none.test:443").await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    assert!(program.rest().await.contains("egress_unreachable"));
    assert!(relay.connect(&free.to_string()).await.1.starts_with("HTTP/1.1 502"));
    rig.feed.attempt("none.test", Verdict::Unresolved).await;
    rig.feed.attempt("127.0.0.3", Verdict::Unreachable).await;
}
