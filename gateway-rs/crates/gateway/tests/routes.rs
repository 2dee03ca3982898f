//! The route table as calls see it: unknown ids, ends, moves, lost connections, a lost feed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use support::clock::Stopped;
use support::proxy::Proxy;
use support::{Rig, Sidecar, Started, token_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

/// A small part of the waits for a push, for a cause, and for a silent peer.
const STEP: Duration = Duration::from_millis(500);

/// Starts `command` in sb-1, runs `then` once the command runs, returns the answer.
async fn during(rig: &Started, command: &str, then: impl Future<Output = ()>) -> support::Answer {
    let then = async {
        rig.sidecar("sb-1").seen(1).await;
        then.await;
    };
    tokio::join!(rig.run("sb-1", command), then).0
}

#[tokio::test]
async fn a_sandbox_nobody_knows_is_not_found() {
    let rig = Rig::new().start().await;
    let clock = Stopped::now().await;
    let (answer, _) = clock.until(STEP, rig.run("sb-9", "echo hi")).await;
    assert_eq!(
        (answer.code().as_str(), &answer.json()["details"]["sandbox_id"]),
        ("sandbox_not_found", &json!("sb-9"))
    );
}

#[tokio::test]
async fn a_gateway_that_hears_no_control_plane_does_not_say_that_there_is_no_such_sandbox() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    rig.feed = None;
    rig.client.until_metric("route_feed_connected", 0.0).await;
    let clock = Stopped::now().await;
    let (answer, _) = clock.until(STEP, rig.run("sb-9", "echo hi")).await;
    assert_eq!(
        (answer.code().as_str(), &answer.json()["details"]["sandbox_id"]),
        ("upstream_timeout", &json!("sb-9"))
    );
    assert_eq!(rig.run("sb-1", "echo hi").await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_exec_says_that_its_node_is_drained() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let said = |answer: &support::Answer| answer.headers.get("rollbox-draining-at-ms").cloned();
    assert_eq!(said(&rig.run("sb-1", "echo hi").await), None);
    rig.feed().drain("sb-1", 1_800_000_000_000);
    let mut answer = rig.run("sb-1", "echo hi").await;
    for _ in 0..1_000 {
        if said(&answer).is_some() {
            break;
        }
        answer = rig.run("sb-1", "echo hi").await;
    }
    assert_eq!(said(&answer).unwrap(), "1800000000000");
}

#[tokio::test]
async fn a_call_that_comes_before_the_push_waits_for_it() {
    let rig = Rig::new().start().await;
    let socket = rig.folder.socket("late");
    let sidecar = Sidecar::listen(&socket);
    let _clock = Stopped::now().await;
    let push = async {
        rig.client.until_metric("calls", 1.0).await;
        rig.feed().push("sb-1", &socket, 1);
    };
    let (answer, ()) = tokio::join!(rig.run("sb-1", "echo hi"), push);
    assert_eq!(answer.json()["stdout"], "hi");
    assert_eq!(sidecar.seen_now(), 1);
}

#[tokio::test]
async fn the_end_of_a_sandbox_ends_its_calls_at_once_and_answers_later_ones() {
    for (cause, status) in
        [("deleted", 410), ("disk_full", 410), ("node_lost", 410), ("image_pull_failed", 502)]
    {
        let rig = Rig::new().sandbox("sb-1").start().await;
        let answer = during(&rig, "hang", async { rig.feed().end("sb-1", 1, cause) }).await;
        assert_eq!((answer.code().as_str(), answer.status.as_u16()), (cause, status));
        assert_eq!(answer.json()["details"]["ended_at_ms"], "1234");
        let later = rig.run("sb-1", "echo hi").await;
        assert_eq!(later.code(), cause);
        assert_eq!(later.json()["detail"], format!("sandbox sb-1 ended: fake {cause}"));
        rig.client.until_metric("upstream_connections", 0.0).await;
    }
}

#[tokio::test]
async fn a_command_whose_sandbox_dies_of_memory_ends_as_one_that_was_killed_for_it() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let answer = during(&rig, "hang", async { rig.feed().end("sb-1", 1, "oom_killed") }).await;
    let body = answer.json();
    assert_eq!(
        (answer.status.as_u16(), &body["end"], &body["signal"]),
        (200, &json!("oom_killed"), &json!(9))
    );
    assert_eq!((&body["exit_code"], &body["stdout"]), (&json!(null), &json!("")));
    // Its output died with the sandbox, and the answer says so.
    assert_eq!((&body["stdout_truncated"], &body["stderr_truncated"]), (&json!(true), &json!(true)));
    // This command did not start, so it was not killed.
    assert_eq!(rig.run("sb-1", "echo hi").await.code(), "oom_killed");
}

#[tokio::test]
async fn the_end_of_a_sandbox_ends_calls_that_wait_for_their_turn() {
    let rig = Rig::new().sandbox("sb-1").set("MAX_INFLIGHT_PER_SANDBOX", 1).start().await;
    let end = async {
        rig.client.until_metric("exec_queued", 3.0).await;
        rig.feed().end("sb-1", 1, "ttl_expired");
    };
    let calls = futures_util::future::join_all((0..4).map(|_| rig.run("sb-1", "hang")));
    let (answers, ()) = tokio::join!(calls, end);
    assert!(answers.iter().all(|answer| answer.code() == "ttl_expired"));
    assert_eq!(rig.sidecar("sb-1").seen_now(), 1);
    rig.client.until_metric("exec_inflight", 0.0).await;
}

#[tokio::test]
async fn a_lost_connection_is_stream_interrupted_and_the_same_exec_can_be_sent_again() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    let sidecar = rig.sidecars.remove("sb-1").unwrap();
    let body = json!({"command": "hang", "exec_id": "e-1"});
    let broken = rig.exec("sb-1", &body);
    let clock = Stopped::now().await;
    let breaking = async {
        sidecar.seen(1).await;
        drop(sidecar);
        Sidecar::listen(&rig.folder.socket("sb-1"))
    };
    // The gateway waits for a cause, which does not come.
    let ((answer, sidecar), _) = clock.until(STEP, futures_util::future::join(broken, breaking)).await;
    assert_eq!((answer.code().as_str(), answer.status), ("stream_interrupted", StatusCode::BAD_GATEWAY));
    assert_eq!(answer.json()["retry"], "resume");
    let again = rig.exec("sb-1", &json!({"command": "echo again", "exec_id": "e-1"})).await;
    assert_eq!((&again.json()["stdout"], sidecar.seen_now()), (&json!("again"), 1));
}

#[tokio::test]
async fn a_connection_that_breaks_because_the_sandbox_died_gives_the_cause() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    let sidecar = rig.sidecars.remove("sb-1").unwrap();
    let _clock = Stopped::now().await;
    let dying = async {
        sidecar.seen(1).await;
        drop(sidecar);
        // The push comes after the connection has gone.
        rig.client.until_metric("upstream_connections", 0.0).await;
        rig.feed().end("sb-1", 1, "sandbox_lost");
    };
    let (answer, ()) = tokio::join!(rig.run("sb-1", "hang"), dying);
    assert_eq!(answer.code(), "sandbox_lost");
}

#[tokio::test]
async fn a_sidecar_that_does_not_listen_is_unreachable_and_one_that_is_about_to_is_waited_for() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    rig.sidecars.clear();
    let clock = Stopped::now().await;
    let (answer, _) = clock.until(STEP, rig.run("sb-1", "echo hi")).await;
    assert_eq!((answer.code().as_str(), answer.status), ("sandbox_unreachable", StatusCode::BAD_GATEWAY));
    let late = async {
        rig.client.until_metric("exec_inflight", 1.0).await;
        clock.settle().await;
        let sidecar = Sidecar::listen(&rig.folder.socket("sb-1"));
        // The first attempt has failed; the next one comes soon.
        clock.pass(Duration::from_millis(100)).await;
        sidecar
    };
    let (answer, _sidecar) = tokio::join!(rig.run("sb-1", "echo hi"), late);
    assert_eq!(answer.json()["stdout"], "hi");
}

#[tokio::test]
async fn many_calls_to_a_sidecar_that_does_not_listen_wait_together_not_in_turn() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    rig.sidecars.clear();
    let clock = Stopped::now().await;
    let calls = futures_util::future::join_all((0..32).map(|_| rig.run("sb-1", "echo hi")));
    let mut calls = std::pin::pin!(calls);
    // All calls wait before the deadline of the connection attempts has passed.
    tokio::select! {
        answers = &mut calls => panic!("{answers:?}"),
        () = rig.client.until_metric("exec_inflight", 32.0) => {}
    }
    let (answers, waited) = clock.until(STEP, calls).await;
    assert!(answers.iter().all(|answer| answer.code() == "sandbox_unreachable"));
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    assert_eq!(rig.client.metric("upstream_connects_total{outcome=\"failed\"}").await, 1.0);
}

/// Reads HTTP/2 frames up to the next request; returns its stream id.
async fn next_request(stream: &mut UnixStream) -> [u8; 4] {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == 1 {
            return [head[5], head[6], head[7], head[8]];
        }
    }
}

#[tokio::test]
async fn what_the_sidecar_has_provably_not_looked_at_is_sent_again() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    rig.sidecars.clear();
    let socket = rig.folder.socket("sb-1");
    let listener = UnixListener::bind(&socket).unwrap();
    let refusing = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 24]).await.unwrap();
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let refused = next_request(&mut stream).await;
        let reset = [b"\0\0\x04\x03\0", &refused[..], b"\0\0\0\x07"].concat();
        stream.write_all(&reset).await.unwrap();
        next_request(&mut stream).await;
        std::fs::remove_file(&socket).unwrap();
        let sidecar = Sidecar::listen(&socket);
        // GOAWAY: the last stream that was processed is the first one.
        stream.write_all(&[b"\0\0\x08\x07\0\0\0\0\0", &refused[..], b"\0\0\0\0"].concat()).await.unwrap();
        (stream, sidecar)
    };
    let (answer, (_stream, sidecar)) = tokio::join!(rig.run("sb-1", "echo hi"), refusing);
    assert_eq!((answer.text().contains("\"hi\""), sidecar.seen_now()), (true, 1), "{}", answer.text());
}

#[tokio::test]
async fn a_connection_that_broke_while_idle_is_replaced_without_a_word() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    assert_eq!(rig.run("sb-1", "echo one").await.json()["stdout"], "one");
    rig.sidecars.clear();
    rig.client.until_metric("upstream_connections", 0.0).await;
    let _sidecar = Sidecar::listen(&rig.folder.socket("sb-1"));
    assert_eq!(rig.run("sb-1", "echo two").await.json()["stdout"], "two");
}

#[tokio::test]
async fn a_larger_generation_moves_the_sandbox_and_a_smaller_one_does_not() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let socket = rig.folder.socket("second");
    let second = Sidecar::listen(&socket);
    let interrupted = during(&rig, "hang", async { rig.feed().push("sb-1", &socket, 2) }).await;
    assert_eq!(interrupted.code(), "stream_interrupted");
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    assert_eq!(second.seen_now(), 1);
    rig.feed().push("sb-1", &rig.folder.socket("sb-1"), 1);
    rig.client.until_metric("route_feed_fenced_total", 1.0).await;
    rig.run("sb-1", "echo hi").await;
    rig.feed().end("sb-1", 1, "deleted");
    rig.client.until_metric("route_feed_fenced_total", 2.0).await;
    assert_eq!(rig.run("sb-1", "echo hi").await.status, StatusCode::OK);
    assert_eq!((second.seen_now(), rig.sidecar("sb-1").seen_now()), (3, 1));
}

#[tokio::test]
async fn the_table_outlives_the_feed_and_a_new_snapshot_replaces_it() {
    // Stopped from the beginning: only a fresh route is kept for a while before it is forgotten.
    let clock = Stopped::now().await;
    let mut rig = Rig::new().sandbox("sb-1").sandbox("sb-2").start().await;
    rig.feed = None;
    rig.client.until_metric("route_feed_connected", 0.0).await;
    assert_eq!(rig.run("sb-1", "echo hi").await.status, StatusCode::OK);
    assert_eq!(rig.client.get("/readyz").await.status, StatusCode::OK, "an old table is enough");
    let feed = support::Feed::listen(&rig.folder.socket("routes"));
    feed.know("sb-2", &rig.folder.socket("sb-2"), 1);
    // Longer than the longest reconnect backoff, shorter than the time for which a fresh route is kept.
    clock.pass(Duration::from_secs(3)).await;
    rig.client.until_metric("route_feed_connected", 1.0).await;
    assert_eq!(rig.run("sb-1", "echo hi").await.status, StatusCode::OK, "a replica may lag for a moment");
    assert_eq!(rig.run("sb-2", "echo hi").await.status, StatusCode::OK);
    clock.pass(Duration::from_secs(6)).await;
    rig.client.until_metric("routes", 1.0).await;
    let (unknown, _) = clock.until(STEP, rig.run("sb-1", "echo hi")).await;
    assert_eq!(unknown.code(), "sandbox_not_found");
    assert!(rig.client.metric("route_feed_reconnects_total").await >= 1.0);
}

#[tokio::test]
async fn a_snapshot_without_a_sandbox_ends_its_calls() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    let call = rig.client.clone();
    let token = token_of("sb-1", "alice", &["exec"]);
    let running =
        tokio::spawn(async move { call.exec("sb-1", &token, json!({"command": "hang"}).to_string()).await });
    rig.sidecar("sb-1").seen(1).await;
    rig.feed = None;
    let _feed = support::Feed::listen(&rig.folder.socket("routes"));
    let clock = Stopped::now().await;
    assert_eq!(clock.until(STEP, running).await.0.unwrap().code(), "sandbox_lost");
}

#[tokio::test]
async fn a_pod_that_vanishes_without_a_word_is_unreachable_within_seconds() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let proxy = Proxy::listen(&rig.folder.socket("sb-1")).await;
    rig.feed().push_tcp("sb-2", proxy.address, 1);
    let clock = Stopped::now().await;
    let mut hung = std::pin::pin!(rig.run("sb-2", "hang"));
    tokio::select! {
        answer = &mut hung => panic!("{answer:?}"),
        _ = rig.sidecar("sb-1").seen(1) => {}
    }
    proxy.vanish();
    let (answer, waited) = clock.until(STEP, hung).await;
    assert_eq!(answer.code(), "sandbox_unreachable", "{}", answer.text());
    assert!(waited < Duration::from_secs(35), "{waited:?}");
    let (later, _) = clock.until(STEP, rig.run("sb-2", "echo hi")).await;
    assert_eq!(later.code(), "sandbox_unreachable");
    // Its own time limit does not cut the wait for the cause short.
    let token = token_of("sb-2", "alice", &["exec"]);
    let listing = rig.client.call(Method::GET, "/v1/sandboxes/sb-2/execs", &token);
    assert_eq!(clock.until(STEP, listing).await.0.code(), "sandbox_unreachable");
}

#[tokio::test]
async fn a_tcp_connection_that_breaks_while_the_sandbox_is_well_is_only_interrupted() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let proxy = Proxy::listen(&rig.folder.socket("sb-1")).await;
    rig.feed().push_tcp("sb-2", proxy.address, 1);
    let clock = Stopped::now().await;
    let mut hung = std::pin::pin!(rig.run("sb-2", "hang"));
    tokio::select! {
        answer = &mut hung => panic!("{answer:?}"),
        _ = rig.sidecar("sb-1").seen(1) => {}
    }
    proxy.cut();
    assert_eq!(clock.until(STEP, hung).await.0.code(), "stream_interrupted");
}

#[tokio::test]
async fn the_control_plane_is_found_by_name_again_and_again() {
    let rig = Rig::new();
    let proxies = [Proxy::listen(&rig.socket("routes")).await, Proxy::listen(&rig.socket("api")).await];
    let url = |proxy: &Proxy| format!("http://localhost:{}", proxy.address.port());
    let rig = rig.set("ROUTES_URL", url(&proxies[0])).set("CONTROLPLANE_URL", url(&proxies[1]));
    let rig = rig.sandbox("sb-1").start().await;
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    assert_eq!(rig.client.get("/v1/echo").await.status, StatusCode::CREATED);
    let before = Instant::now();
    proxies[0].cut();
    rig.client.until_metric("route_feed_reconnects_total", 1.0).await;
    rig.client.until_metric("route_feed_connected", 1.0).await;
    assert!(rig.client.metric("route_feed_age_seconds").await <= before.elapsed().as_secs_f64());
}

#[tokio::test]
async fn a_gateway_without_a_snapshot_is_not_ready() {
    let rig = Rig::new().without_feed().start().await;
    let answer = rig.client.get("/readyz").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.text().contains("snapshot"));
    assert_eq!(rig.client.get("/healthz").await.status, StatusCode::OK);
    let _feed = support::Feed::listen(&rig.folder.socket("routes"));
    rig.client.until_ready().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_next_call_opens_one() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    rig.run("sb-1", "echo one").await;
    rig.client.until_metric("upstream_connections", 1.0).await;
    let clock = Stopped::now().await;
    // The first pass finds the connection idle, the second one closes it.
    for _ in 0..2 {
        clock.pass(Duration::from_secs(61)).await;
    }
    rig.client.until_metric("upstream_connections", 0.0).await;
    assert_eq!(rig.run("sb-1", "echo two").await.json()["stdout"], "two");
    assert_eq!(rig.sidecar("sb-1").served.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_is_used_between_the_checks_stays_open() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let clock = Stopped::now().await;
    for _ in 0..4 {
        assert_eq!(rig.run("sb-1", "echo on").await.json()["stdout"], "on");
        clock.pass(Duration::from_secs(61)).await;
    }
    assert_eq!(rig.sidecar("sb-1").served.connections(), 1);
}
