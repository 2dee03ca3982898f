//! SIGTERM: new calls are refused, running ones end, those that are left are aborted; and the process's exit statuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use program::process::Program as _;
use serde_json::json;
use support::clock::Stopped;
use support::{Client, ControlPlane, Rig, Started};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Stops the gateway in the background; returns once it drains.
async fn stop(rig: &mut Started) -> JoinHandle<()> {
    let running = rig.running.take().unwrap();
    let stopping = tokio::spawn(running.stop());
    rig.client.until_metric("draining", 1.0).await;
    stopping
}

fn spawn_run(rig: &Started, command: &'static str) -> JoinHandle<support::Answer> {
    let (client, token) = (rig.client.clone(), support::token_of("sb-1", "alice", &["exec"]));
    tokio::spawn(async move { client.exec("sb-1", &token, json!({"command": command}).to_string()).await })
}

fn spawn_create(client: &Client) -> JoinHandle<support::Answer> {
    let (client, request) = (client.clone(), client.request(Method::POST, "/v1/sandboxes"));
    tokio::spawn(async move { client.send(request.body("{}".into()).unwrap()).await })
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
    let create = spawn_create(&rig.client);
    rig.controlplane().arrived(1).await;
    let clock = Stopped::now().await;
    let stopping = stop(&mut rig).await;
    clock.pass(Duration::from_millis(200)).await;
    assert_eq!(running.await.unwrap().code(), "stream_interrupted");
    assert_eq!(create.await.unwrap().code(), "draining");
    rig.sidecar("sb-1").dropped(1).await;
    stopping.await.unwrap();
}

#[tokio::test]
async fn what_is_left_is_cut_off_with_a_code_when_the_stop_is_hurried() {
    let mut rig = Rig::new().set("DRAIN_MS", HOUR.as_millis()).start().await;
    let create = spawn_create(&rig.client);
    rig.controlplane().arrived(1).await;
    let _clock = Stopped::now().await;
    let (hurry, hurried) = oneshot::channel::<()>();
    let stop = rig.running.take().unwrap().stop_within(async { hurried.await.unwrap() });
    let stopping = tokio::spawn(stop);
    rig.client.until_metric("draining", 1.0).await;
    hurry.send(()).unwrap();
    assert_eq!(create.await.unwrap().code(), "draining");
    stopping.await.unwrap();
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
    let mut rig = Rig::new().sandbox("sb-1").start().await;
    rig.run("sb-1", "echo hi").await;
    let _clock = Stopped::now().await;
    let began = Instant::now();
    rig.running.take().unwrap().stop().await;
    assert_eq!(began.elapsed(), Duration::ZERO, "the stop waited for idle connections");
}

#[tokio::test]
async fn a_stream_of_events_ends_when_the_drain_starts() {
    let mut rig = Rig::new().set("DRAIN_MS", HOUR.as_millis()).start().await;
    let asked = rig.client.request(Method::GET, "/v1/events").body(Body::empty()).unwrap();
    let mut answer = rig.client.open(asked).await;
    let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "id: 1\n\n");
    let stopping = tokio::spawn(rig.running.take().unwrap().stop());
    let end = tokio::time::timeout(LIMIT, answer.body_mut().frame()).await.unwrap();
    assert!(end.is_none(), "an end, and no break: what came is whole");
    tokio::time::timeout(LIMIT, stopping).await.unwrap().unwrap();
}

fn process(rig: &Rig) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rollbox-gateway"));
    command.env_clear().envs(rig.environment()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

async fn ended(child: Child) -> (Option<i32>, String) {
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
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

/// Starts the process and waits until it serves; returns its address too.
async fn serving(rig: &Rig) -> (Child, SocketAddr) {
    let mut child = process(rig);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if line.contains("started") {
            // A log line is JSON where nobody looks at a terminal.
            let (_, address) = line.split_once("\"address\":\"").unwrap();
            let address = address.split('"').next().unwrap().parse().unwrap();
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
    let status = tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_second_sigterm_ends_the_drain() {
    let rig = Rig::new().set("DRAIN_MS", HOUR.as_millis());
    let controlplane = ControlPlane::listen(&rig.socket("api"));
    let (mut child, address) = serving(&rig).await;
    let client = Client::new(address);
    // Which answer it gets is tested above; here it may not arrive before the process exits.
    let _create = spawn_create(&client);
    controlplane.arrived(1).await;
    send_sigterm(&child).await;
    client.until_metric("draining", 1.0).await;
    send_sigterm(&child).await;
    let status = tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}
