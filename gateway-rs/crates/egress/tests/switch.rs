//! A policy that changes under open connections; links, feeds and replicas that come and go.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

mod support;

use support::outside::Server;
use support::{Rig, allows, denies, offline};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::{Assignment, Delta, EgressReport, Policy, Verdict};

#[tokio::test]
async fn a_switch_cuts_what_it_does_not_allow_and_nothing_else() {
    let (rig, mut a, mut b) =
        (Rig::start().await, Server::listen("127.0.0.2").await, Server::listen("127.0.0.3").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    rig.names.set("b.test", &[&["127.0.0.3"]]);
    let relay = rig.sandbox("sb-1", &allows(&["a.test", "b.test"])).await;
    let (mut to_a, _) = relay.connect(&format!("a.test:{}", a.port())).await;
    let (mut to_b, _) = relay.connect(&format!("b.test:{}", b.port())).await;
    let (mut at_a, mut at_b) = (a.accept().await, b.accept().await);
    assert_eq!(rig.switch("sb-1", &allows(&["b.test"]), 2).await, 1);
    // Once it is told as applied, the server has seen the end.
    assert_eq!(at_a.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(to_a.rest().await, "");
    at_b.write_all(b"still there").await.unwrap();
    assert_eq!(to_b.exactly(11).await, b"still there");
    assert!(relay.connect(&format!("a.test:{}", a.port())).await.1.starts_with("HTTP/1.1 403"));
    rig.feed.attempt("a.test", Verdict::Cut).await;
    // An older revision changes nothing.
    rig.feed.assign(rig.assignment("sb-1", &offline(), 1), &[]);
    assert_eq!(rig.switch("sb-1", &denies(&["c.test"]), 3).await, 0);
}

#[tokio::test]
async fn a_forwarded_answer_is_broken_off_by_a_switch() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    rig.names.set("a.test", &[&["127.0.0.2"]]);
    let relay = rig.sandbox("sb-1", &allows(&["a.test"])).await;
    let port = server.port();
    let mut program = relay.program().await;
    program
        .send(format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n").as_bytes())
        .await;
    let mut peer = server.accept().await;
    support::outside::head(&mut peer).await;
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegin").await.unwrap();
    assert!(program.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(rig.switch("sb-1", &offline(), 2).await, 1);
    assert!(program.rest().await.len() < 1000);
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_or_is_not_known_allows_nothing() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let broken = Policy { deny: vec![support::rule("*x*")], ..denies(&[]) };
    let relay = rig.sandbox("sb-1", &broken).await;
    assert!(relay.connect(&server.address.to_string()).await.1.starts_with("HTTP/1.1 403"));
    let unknown = denies(&[]);
    rig.feed.assign(rig.assignment("sb-1", &unknown, 2), &[]);
    rig.feed.applied("sb-1", 2).await;
    assert!(relay.connect(&server.address.to_string()).await.1.starts_with("HTTP/1.1 403"));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_link_that_is_lost_is_opened_again_and_told() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let mut relay = rig.sandbox("sb-1", &denies(&[])).await;
    let (_program, _) = relay.connect(&server.address.to_string()).await;
    let mut peer = server.accept().await;
    relay.lose_link().await;
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap_or(0), 0);
    rig.feed.linked("sb-1", false).await;
    relay.linked().await;
    assert!(relay.connect(&server.address.to_string()).await.1.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_sandbox_without_a_sidecar_is_told_with_its_policy_and_tried_again() {
    let rig = Rig::start().await;
    let policy = denies(&[]);
    rig.feed.assign(rig.assignment("sb-1", &policy, 1), std::slice::from_ref(&policy));
    assert!(rig.feed.linked("sb-1", false).await.detail.contains("the sidecar does not answer"));
    rig.feed.applied("sb-1", 1).await;
    let mut relay = support::Relay::listen(&rig.folder.socket("sb-1"));
    relay.linked().await;
    rig.feed.linked("sb-1", true).await;
}

#[tokio::test]
async fn a_sandbox_that_moves_away_takes_nothing_new_here_and_what_is_open_may_end() {
    let rig = Rig::with(&[("HANDOVER_MS", "600000")]).await;
    let mut server = Server::listen("127.0.0.2").await;
    let relay = rig.sandbox("sb-1", &denies(&[])).await;
    let (mut program, _) = relay.connect(&server.address.to_string()).await;
    let mut peer = server.accept().await;
    rig.feed.withdraw("sb-1");
    // Until it has heard of it.
    while relay.try_program().await.is_ok() {}
    peer.write_all(b"last").await.unwrap();
    assert_eq!(program.exactly(4).await, b"last");
    drop(peer);
    program.finish().await;
    rig.feed.linked("sb-1", false).await;
    let told = rig.feed.attempt_with(|attempt| attempt.received_bytes == 4).await;
    assert_eq!(told.verdict(), Verdict::Allowed);
}

#[tokio::test]
async fn a_sandbox_that_comes_back_gets_a_new_link() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let policy = denies(&[]);
    let mut relay = rig.sandbox("sb-1", &policy).await;
    // Another replica has served it, and its link is the one that the relay uses: this one is alive, and of no use.
    let back = Assignment { moved: true, ..rig.assignment("sb-1", &policy, 1) };
    rig.feed.assign(back, std::slice::from_ref(&policy));
    relay.linked().await;
    assert!(relay.connect(&server.address.to_string()).await.1.starts_with("HTTP/1.1 200"));
    server.accept().await;
    // Taken in and told after it.
    let _other = rig.sandbox("sb-2", &policy).await;
    let lost = |report: &EgressReport| report.links.iter().any(|one| one.sandbox_id == "sb-1" && !one.up);
    assert!(!rig.feed.reports().iter().any(lost));
}

#[tokio::test]
async fn a_switch_is_applied_once_nothing_is_open_at_the_replica_that_served_before() {
    let (allows, denies) = (denies(&[]), denies(&["a.test"]));
    for (handover_ms, soon) in [("600000", false), ("1", true)] {
        let rig = Rig::with(&[("HANDOVER_MS", handover_ms), ("DRAIN_MS", "1")]).await;
        let mut relay = support::Relay::listen(&rig.folder.socket("sb-1"));
        let moved = Assignment { moved: true, ..rig.assignment("sb-1", &allows, 1) };
        rig.feed.assign(moved, std::slice::from_ref(&allows));
        relay.linked().await;
        rig.feed.applied("sb-1", 1).await;
        rig.feed.assign(rig.assignment("sb-1", &denies, 2), std::slice::from_ref(&denies));
        if soon {
            rig.feed.applied("sb-1", 2).await;
        } else {
            // Taken in and told after it.
            let _other = rig.sandbox("sb-2", &denies).await;
            let early = |report: &EgressReport| report.applied.iter().any(|one| one.revision == 2);
            assert!(!rig.feed.reports().iter().any(early));
            // In force all the same.
            assert!(relay.connect("a.test:443").await.1.starts_with("HTTP/1.1 403"));
        }
    }
}

#[tokio::test]
async fn what_is_withdrawn_is_closed() {
    let (rig, mut server) = (Rig::start().await, Server::listen("127.0.0.2").await);
    let relay = rig.sandbox("sb-1", &denies(&[])).await;
    let (mut program, _) = relay.connect(&server.address.to_string()).await;
    let mut peer = server.accept().await;
    rig.feed.withdraw("sb-1");
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert_eq!(program.rest().await, "");
    rig.feed.linked("sb-1", false).await;
    assert!(relay.try_program().await.is_err());
}

#[tokio::test]
async fn while_the_feed_is_lost_links_stay_and_none_is_opened() {
    let mut rig = Rig::start().await;
    let mut server = Server::listen("127.0.0.2").await;
    let policy = denies(&[]);
    let mut stays = rig.sandbox("sb-1", &policy).await;
    let mut lost = rig.sandbox("sb-2", &policy).await;
    let socket = rig.folder.socket("feed");
    // Another, empty feed would withdraw both: there is none.
    drop(std::mem::replace(&mut rig.feed, support::Feed::listen(&rig.folder.socket("nobody"))));
    lost.lose_link().await;
    assert!(stays.connect(&server.address.to_string()).await.1.starts_with("HTTP/1.1 200"));
    server.accept().await;
    rig.feed = support::Feed::listen(&socket);
    for id in ["sb-1", "sb-2"] {
        rig.feed.know(rig.assignment(id, &policy, 1), std::slice::from_ref(&policy));
    }
    // The feed that comes back has its own snapshot first, so the order of these two is not defined; both come.
    rig.feed.watched_by(1).await;
    rig.feed.send(Delta::default());
    lost.linked().await;
    rig.feed.applied("sb-2", 1).await;
    assert!(stays.is_linked());
    stays.lose_link().await;
}

#[tokio::test]
async fn a_drain_ends_the_feed_and_lets_open_connections_end() {
    let mut rig = Rig::with(&[("DRAIN_MS", "600000")]).await;
    let mut server = Server::listen("127.0.0.2").await;
    let relay = rig.sandbox("sb-1", &denies(&[])).await;
    let idle = rig.sandbox("sb-2", &denies(&[])).await;
    let (mut program, _) = relay.connect(&server.address.to_string()).await;
    let mut peer = server.accept().await;
    let stopping = tokio::spawn(rig.running.take().unwrap().stop());
    rig.feed.watched_by(0).await;
    rig.feed.linked("sb-2", false).await;
    assert!(idle.try_program().await.is_err());
    peer.write_all(b"last").await.unwrap();
    assert_eq!(program.exactly(4).await, b"last");
    drop(peer);
    program.finish().await;
    stopping.await.unwrap();
    let told = rig.feed.attempt_with(|attempt| attempt.duration_ms > 0).await;
    assert_eq!((told.verdict(), told.received_bytes), (Verdict::Allowed, 4));
}

#[tokio::test]
async fn what_is_open_at_the_end_of_a_drain_is_cut_and_told() {
    let mut rig = Rig::with(&[("DRAIN_MS", "50")]).await;
    let mut server = Server::listen("127.0.0.2").await;
    let relay = rig.sandbox("sb-1", &denies(&[])).await;
    let (_program, _) = relay.connect(&server.address.to_string()).await;
    let mut peer = server.accept().await;
    rig.running.take().unwrap().stop().await;
    assert_eq!(peer.read(&mut [0; 1]).await.unwrap_or(0), 0);
    rig.feed.attempt("127.0.0.2", Verdict::Cut).await;
}
