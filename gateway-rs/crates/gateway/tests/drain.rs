//! SIGTERM: new calls are refused, running ones end, what is left is cut off; and the process's exit statuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;
use support::{Client, ControlPlane, Rig, Started};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Stops the gateway in the background; completes when it drains.
async fn stop(rig: &mut Started) -> tokio::task::JoinHandle<()> {
    let running = rig.running.take().unwrap();
    let stopping = tokio::spawn(running.stop());
    rig.client.until_metric("draining", 1.0).await;
    stopping
}

fn spawn_run(rig: &Started, command: &'static str) -> tokio::task::JoinHandle<support::Answer> {
    let (client, token) = (rig.client.clone(), support::token_of("sb-1", "alice", &["exec"]));
    tokio::spawn(async move { client.exec("sb-1", &token, json!({"command": command}).to_string()).await })
}

#[tokio::test]
async fn a_drain_refuses_new_calls_and_lets_running_ones_end() {
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    let running = spawn_run(&rig, "hold");
    rig.sidecar("sb-1").seen(1).await;
    let stopping = stop(&mut rig).await;
    let ready = rig.client.get("/readyz").await;
    assert_eq!((ready.status, ready.text().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "draining\n"));
    assert_eq!(rig.client.get("/healthz").await.status, StatusCode::OK);
    let refused = rig.run("sb-1", "echo hi").await;
    assert_eq!(
        (refused.code().as_str(), refused.headers["connection"].to_str().unwrap()),
        ("draining", "close")
    );
    assert_eq!(rig.client.get("/v1/echo").await.code(), "draining");
    rig.sidecar("sb-1").release(1);
    assert_eq!(running.await.unwrap().json()["stdout"], "released");
    stopping.await.unwrap();
}

#[tokio::test]
async fn what_is_left_after_the_drain_time_is_cut_off_with_a_code() {
    let mut rig = Rig::new().sandbox("sb-1").set("DRAIN_MS", 100).start().await;
    let running = spawn_run(&rig, "hang");
    rig.sidecar("sb-1").seen(1).await;
    let create = tokio::spawn({
        let (client, request) = (rig.client.clone(), rig.client.request(Method::POST, "/v1/sandboxes"));
        async move { client.send(request.body("{}".into()).unwrap()).await }
    });
    rig.controlplane().arrived(1).await;
    rig.running.take().unwrap().stop().await;
    assert_eq!(running.await.unwrap().code(), "stream_interrupted");
    assert_eq!(create.await.unwrap().code(), "draining");
    rig.sidecar("sb-1").dropped(1).await;
}

#[tokio::test]
async fn calls_that_wait_for_their_turn_are_sent_elsewhere_at_once() {
    let mut rig = Rig::new().sandbox("sb-1").set("MAX_INFLIGHT", 1).start().await;
    let running = spawn_run(&rig, "hold");
    rig.sidecar("sb-1").seen(1).await;
    let waiting = spawn_run(&rig, "hold");
    rig.client.until_metric("exec_queued", 1.0).await;
    let stopping = stop(&mut rig).await;
    assert_eq!(waiting.await.unwrap().code(), "draining");
    rig.sidecar("sb-1").release(1);
    assert_eq!(running.await.unwrap().status, StatusCode::OK);
    stopping.await.unwrap();
}

#[tokio::test]
async fn an_idle_gateway_stops_at_once_although_clients_keep_connections() {
    let mut times = Vec::new();
    // Connections that do not end by themselves are cut off after a second: a machine that is busy for a moment could
    // make one stop look like that.
    for _ in 0..3 {
        let mut rig = Rig::new().sandbox("sb-1").start().await;
        rig.run("sb-1", "echo hi").await;
        let began = Instant::now();
        rig.running.take().unwrap().stop().await;
        times.push(began.elapsed());
    }
    assert!(times.iter().any(|took| *took < Duration::from_millis(900)), "{times:?}");
}

fn process(rig: &Rig) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rollbox-gateway"));
    command.env_clear().envs(rig.environment()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

async fn ended(child: Child) -> (Option<i32>, String) {
    let output =
        tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await.unwrap().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn a_bad_setting_ends_the_process_with_64_and_its_name() {
    let (status, text) = ended(process(&Rig::new().set("MAX_INFLIGHT", "many"))).await;
    assert_eq!(status, Some(64));
    assert!(
        text.contains("ROLLBOX_GATEWAY_MAX_INFLIGHT is \"many\": it must be an integer of 1 to 1000000"),
        "{text}"
    );
}

#[tokio::test]
async fn a_port_that_is_taken_ends_the_process_with_1() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (status, text) = ended(process(&Rig::new().set("LISTEN", taken.local_addr().unwrap()))).await;
    assert_eq!(status, Some(1));
    assert!(text.contains("cannot listen on 127.0.0.1:"), "{text}");
}

/// Starts the process and waits until it serves; gives its address too.
async fn serving(rig: &Rig) -> (Child, SocketAddr) {
    let mut child = process(rig);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if line.contains("started") {
            let (_, address) = line.split_once("address=").unwrap();
            let address = address.split(' ').next().unwrap().parse().unwrap();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (child, address);
        }
    }
}

async fn send_sigterm(child: &Child) {
    let pid = child.id().unwrap().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().await.unwrap();
}

#[tokio::test]
async fn sigterm_ends_the_process_with_0() {
    let (mut child, _) = serving(&Rig::new()).await;
    send_sigterm(&child).await;
    let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_second_sigterm_ends_the_drain() {
    let rig = Rig::new();
    let controlplane = ControlPlane::listen(&rig.socket("api"));
    let (mut child, address) = serving(&rig).await;
    let client = Client::new(address);
    let create = tokio::spawn({
        let (client, request) = (client.clone(), client.request(Method::POST, "/v1/sandboxes"));
        async move { client.send(request.body("{}".into()).unwrap()).await }
    });
    controlplane.arrived(1).await;
    send_sigterm(&child).await;
    client.until_metric("draining", 1.0).await;
    send_sigterm(&child).await;
    let status = tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap();
    assert_eq!((status.code(), create.await.unwrap().code().as_str()), (Some(0), "draining"));
}
