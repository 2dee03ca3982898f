//! Admission: permits, fair turns, and slow clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::time::Duration;

use http::Method;
use serde_json::json;
use support::clock::Stopped;
use support::{Rig, token_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_call_waits_for_its_turn_and_says_how_long() {
    let rig = Rig::new().sandbox("sb-1").set("MAX_INFLIGHT", 1).start().await;
    let clock = Stopped::now().await;
    let release = async {
        rig.client.until_metric("exec_queued", 1.0).await;
        clock.pass(Duration::from_secs(1)).await;
        rig.sidecar("sb-1").release(2);
    };
    let (first, second, ()) = tokio::join!(rig.run("sb-1", "hold"), rig.run("sb-1", "hold"), release);
    let mut queued = [&first, &second].map(|answer| answer.json()["queue_ms"].as_f64().unwrap());
    queued.sort_by(f64::total_cmp);
    assert_eq!(queued, [0.0, 1000.0]);
}

#[tokio::test]
async fn a_call_that_waits_too_long_is_refused_and_starts_nothing() {
    let rig = Rig::new()
        .sandbox("sb-1")
        .set("MAX_INFLIGHT_PER_SANDBOX", 1)
        .set("QUEUE_TIMEOUT_MS", 50)
        .start()
        .await;
    let late = async {
        rig.sidecar("sb-1").seen(1).await;
        let answer = rig.run("sb-1", "echo hi").await;
        rig.sidecar("sb-1").release(1);
        answer
    };
    let (held, refused) = tokio::join!(rig.run("sb-1", "hold"), late);
    assert_eq!(
        (refused.code().as_str(), refused.headers["retry-after"].to_str().unwrap()),
        ("capacity_unavailable", "1")
    );
    assert_eq!((held.json()["stdout"].as_str(), rig.sidecar("sb-1").seen_now()), (Some("released"), 1));
}

#[tokio::test]
async fn one_owners_crowd_does_not_delay_another_owner() {
    let rig = Rig::new().sandbox("crowd").sandbox("modest").set("MAX_INFLIGHT", 1).start().await;
    let mut crowd = JoinSet::new();
    for _ in 0..50 {
        let (client, token) = (rig.client.clone(), token_of("crowd", "greedy", &["exec"]));
        crowd
            .spawn(async move { client.exec("crowd", &token, json!({"command": "hold"}).to_string()).await });
    }
    rig.client.until_metric("exec_queued", 49.0).await;
    let modest = tokio::spawn({
        let (client, token) = (rig.client.clone(), token_of("modest", "modest", &["exec"]));
        async move { client.exec("modest", &token, json!({"command": "echo hi"}).to_string()).await }
    });
    rig.client.until_metric("exec_queued", 50.0).await;
    // A running call ends, and it is the other owner's turn.
    rig.sidecar("crowd").release(1);
    assert_eq!(modest.await.unwrap().json()["stdout"], "hi");
    assert!(rig.sidecar("crowd").seen_now() <= 2);
    rig.sidecar("crowd").release(49);
    assert_eq!(crowd.join_all().await.len(), 50);
}

#[tokio::test]
async fn a_client_that_sends_slowly_holds_no_place() {
    let rig = Rig::new().sandbox("sb-1").set("MAX_INFLIGHT", 1).start().await;
    let mut slow = TcpStream::connect(rig.client.address).await.unwrap();
    let token = token_of("sb-1", "alice", &["exec"]);
    let head = format!(
        "POST /v1/sandboxes/sb-1/exec HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: 50\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    rig.client.until_metric("calls", 1.0).await;
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    slow.write_all(format!("{:<49}", "\"command\": \"echo slow\"}").as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = slow.read(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer[..count]).starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn the_memory_of_a_body_is_free_again_while_its_command_still_runs() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let body = json!({"command": "hold", "stdin": "x".repeat(1 << 20)});
    let freed = async {
        rig.sidecar("sb-1").seen(1).await;
        rig.client.until_metric("body_bytes", 0.0).await;
        rig.sidecar("sb-1").release(1);
    };
    let (answer, ()) = tokio::join!(rig.exec("sb-1", &body), freed);
    assert_eq!(answer.json()["stdout"], "released");
}

#[tokio::test]
async fn while_all_places_are_taken_execs_can_be_listed_and_cancelled() {
    let rig = Rig::new().sandbox("sb-1").set("MAX_INFLIGHT", 1).start().await;
    let token = token_of("sb-1", "alice", &["exec"]);
    let asked = async {
        rig.sidecar("sb-1").seen(1).await;
        let list = rig.client.call(Method::GET, "/v1/sandboxes/sb-1/execs", &token).await;
        let cancelled = rig.client.call(Method::DELETE, "/v1/sandboxes/sb-1/execs/e-1", &token).await;
        rig.sidecar("sb-1").release(1);
        (list.status.as_u16(), cancelled.status.as_u16())
    };
    let body = json!({"exec_id": "e-1", "command": "hold"});
    let (held, statuses) = tokio::join!(rig.exec("sb-1", &body), asked);
    assert_eq!((held.status.as_u16(), statuses), (200, (200, 200)));
}

#[tokio::test]
async fn metrics_tell_what_happened_and_name_no_sandbox() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    rig.run("sb-1", "echo hi").await;
    rig.run("sb-1", "killed OOM_KILLED").await;
    rig.run("sb-1", "problem conflict").await;
    let answer = rig.client.get("/metrics").await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text();
    for line in [
        "exec_ends_total{end=\"exited\"} 1",
        "exec_ends_total{end=\"oom_killed\"} 1",
        "errors_total{code=\"conflict\",fault=\"caller\",masked=\"false\"} 1",
        "routes_resolved_total{source=\"table\"} 3",
        "upstream_connects_total{outcome=\"connected\"} 1",
        "exec_total_seconds_count 2",
        "exec_sidecar_seconds_count 2",
        "routes 1",
        "route_feed_connected 1",
    ] {
        assert!(text.contains(&format!("rollbox_gateway_{line}")), "{line}\n{text}");
    }
    assert!(!text.contains("sb-1"));
}

#[tokio::test]
async fn two_thousand_execs_leave_nothing_on_the_books() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let token = token_of("sb-1", "alice", &["exec"]);
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (client, token) = (rig.client.clone(), token.clone());
        callers.spawn(async move {
            for _ in 0..100 {
                let answer = client.exec("sb-1", &token, "{\"command\": \"echo hi\"}").await;
                assert_eq!(answer.status.as_u16(), 200);
            }
        });
    }
    tokio::time::timeout(Duration::from_secs(300), callers.join_all()).await.unwrap();
    assert_eq!(rig.sidecar("sb-1").served.connections(), 1);
    for (gauge, left) in
        [("exec_inflight", 0.0), ("exec_queued", 0.0), ("calls", 0.0), ("upstream_connections", 1.0)]
    {
        rig.client.until_metric(gauge, left).await;
    }
}
