//! Everything else under /v1: forwarded and answered unchanged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use support::clock::Stopped;
use support::controlplane::LEFT;
use support::{Answer, ControlPlane, Rig, Started};

/// A small part of the time for which the gateway tries to connect.
const STEP: Duration = Duration::from_millis(50);

fn post(rig: &Started, path: &str) -> http::request::Builder {
    rig.client.request(Method::POST, path)
}

#[tokio::test]
async fn method_path_query_headers_and_body_arrive_as_they_were_sent() {
    let rig = Rig::new().start().await;
    let request = post(&rig, "/v1/echo?label=a%3Db&all=true")
        .header("authorization", "Bearer rbx_key")
        .header("idempotency-key", "k-1")
        .header("x-request-id", "run-7")
        .header("connection", "x-private")
        .header("x-private", "secret")
        .header("rollbox-client-address", "10.0.0.1")
        .header("te", "trailers");
    let answer = rig.client.send(request.body("{\"image\": \"a\"}".into()).unwrap()).await;
    let seen = answer.json();
    assert_eq!((&seen["method"], &seen["uri"]), (&json!("POST"), &json!("/v1/echo?label=a%3Db&all=true")));
    assert_eq!(seen["body"], "{\"image\": \"a\"}");
    let headers = &seen["headers"];
    for (name, value) in
        [("authorization", "Bearer rbx_key"), ("idempotency-key", "k-1"), ("x-request-id", "run-7")]
    {
        assert_eq!(headers[name], value);
    }
    assert_eq!(headers["rollbox-client-address"], "127.0.0.1", "the peer's own, whatever it says of itself");
    assert!(headers["x-private"].is_null() && headers["te"].is_null(), "{headers}");
    assert_eq!(
        (answer.status, answer.headers["idempotency-replayed"].to_str().unwrap()),
        (StatusCode::CREATED, "true")
    );
    assert!(!answer.headers.contains_key("x-hop"));
    assert_eq!(answer.headers["x-request-id"], "run-7");
}

#[tokio::test]
async fn a_made_request_id_reaches_the_control_plane_too() {
    let rig = Rig::new().start().await;
    let answer = rig.client.get("/v1/echo").await;
    assert_eq!(answer.json()["headers"]["x-request-id"], answer.headers["x-request-id"].to_str().unwrap());
}

#[tokio::test]
async fn a_problem_of_the_control_plane_comes_through_unchanged() {
    let rig = Rig::new().start().await;
    let answer = rig.client.get("/v1/refused").await;
    let body = answer.json();
    assert_eq!(
        (answer.status.as_u16(), &body["code"], &body["retry_after_ms"]),
        (429, &json!("quota_exceeded"), &json!(250))
    );
    assert_eq!(body["request_id"], "req-cp");
}

#[tokio::test]
async fn an_answer_streams_through() {
    let rig = Rig::new().start().await;
    let mut answer =
        rig.client.open(rig.client.request(Method::GET, "/v1/stream").body(Body::empty()).unwrap()).await;
    let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first ", "it arrives before the second chunk exists");
    rig.controlplane().release(1);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "second");
}

#[tokio::test]
async fn a_request_streams_through() {
    let rig = Rig::new().start().await;
    let chunks =
        stream::iter((0..64).map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![b'a' + n % 26; 10_000]))));
    let request = post(&rig, "/v1/echo").body(Body::from_stream(chunks.boxed())).unwrap();
    assert_eq!(rig.client.send(request).await.json()["body"].as_str().unwrap().len(), 640_000);
}

#[tokio::test]
async fn a_held_create_is_waited_for() {
    let rig = Rig::new().start().await;
    let release = async {
        rig.controlplane().arrived(1).await;
        rig.controlplane().release(1);
    };
    let create = rig.client.send(post(&rig, "/v1/sandboxes").body("{}".into()).unwrap());
    assert_eq!(tokio::join!(create, release).0.text(), "created");
}

#[tokio::test]
async fn a_client_that_goes_away_takes_the_forwarded_request_along() {
    let rig = Rig::new().start().await;
    let mut create = Box::pin(rig.client.send(post(&rig, "/v1/sandboxes").body("{}".into()).unwrap()));
    tokio::select! {
        _ = &mut create => panic!("the create should be held"),
        () = rig.controlplane().arrived(1) => {}
    }
    drop(create);
    rig.controlplane().dropped(1).await;
    let answer =
        rig.client.open(rig.client.request(Method::GET, "/v1/stream").body(Body::empty()).unwrap()).await;
    drop(answer);
    rig.controlplane().dropped(2).await;
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn a_control_plane_that_is_down_is_a_problem_to_retry_and_one_that_is_back_serves() {
    let rig = Rig::new().without_controlplane().start().await;
    let clock = Stopped::now().await;
    let (answer, _) = clock.until(STEP, rig.client.get("/v1/echo")).await;
    assert_eq!((answer.code().as_str(), &answer.json()["retry"]), ("upstream_timeout", &json!("later")));
    assert!(answer.json()["detail"].as_str().unwrap().contains("cannot be reached"), "{}", answer.text());
    let _controlplane = ControlPlane::listen(&rig.folder.socket("api"));
    assert_eq!(rig.client.get("/v1/echo").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_control_plane_that_dies_under_a_create_is_a_problem_to_retry() {
    let mut rig = Rig::new().start().await;
    let controlplane = rig.controlplane.take().unwrap();
    let dies = async {
        controlplane.arrived(1).await;
        controlplane.cut();
    };
    let create = rig.client.send(post(&rig, "/v1/sandboxes").body("{}".into()).unwrap());
    let (answer, ()) = tokio::join!(create, dies);
    assert_eq!(answer.code(), "upstream_timeout");
}

#[tokio::test]
async fn a_create_with_a_key_survives_the_end_of_the_replica_that_had_it() {
    let mut rig = Rig::new().start().await;
    let controlplane = rig.controlplane.take().unwrap();
    let other = async {
        controlplane.arrived(1).await;
        controlplane.cut();
        drop(std::fs::remove_file(rig.folder.socket("api")));
        let other = ControlPlane::listen(&rig.folder.socket("api"));
        other.release(1);
        other.arrived(1).await;
        other
    };
    let create = post(&rig, "/v1/sandboxes").header("idempotency-key", "k-1").body("{}".into()).unwrap();
    let (answer, _other) = tokio::join!(rig.client.send(create), other);
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "created"));
}

/// Returns the answer to a create with 5 s, whose first replica dies after `held`; another one is there at once.
async fn created_after(held: Duration) -> Answer {
    let mut rig = Rig::new().start().await;
    let (first, clock) = (rig.controlplane.take().unwrap(), Stopped::now().await);
    let create = post(&rig, "/v1/sandboxes").header("idempotency-key", "k-1").header(LEFT, "5000");
    let mut create = pin!(rig.client.send(create.body("{}".into()).unwrap()));
    let dies = async {
        first.arrived(1).await;
        clock.pass(held).await;
        first.cut();
        std::fs::remove_file(rig.folder.socket("api")).unwrap();
        ControlPlane::listen(&rig.folder.socket("api"))
    };
    let other = tokio::select! {
        _ = &mut create => panic!("the create should be held"),
        other = dies => other,
    };
    other.release(1);
    clock.until(STEP, create).await.0
}

#[tokio::test]
async fn another_replica_is_told_what_is_left_of_a_creates_time() {
    let answer = created_after(Duration::from_secs(2)).await;
    let left_ms: u64 = answer.headers[LEFT].to_str().unwrap().parse().unwrap();
    assert!((2_000..=2_950).contains(&left_ms), "{left_ms}");
}

#[tokio::test]
async fn no_other_replica_is_asked_when_nothing_is_left() {
    let answer = created_after(Duration::from_secs(5)).await;
    assert_eq!(answer.code(), "upstream_timeout");
    assert!(answer.text().contains("broke the connection"), "{}", answer.text());
    assert!(answer.text().contains("nothing is left of the start timeout"), "{}", answer.text());
}

/// A create that its replica holds, and another replica that has got it too, after 20 s.
async fn asked_twice(
    refuses: bool,
    then: impl AsyncFnOnce(&ControlPlane, &ControlPlane, &Stopped),
) -> Answer {
    let mut rig = Rig::new().start().await;
    let (stuck, clock) = (rig.controlplane.take().unwrap(), Stopped::now().await);
    let create = post(&rig, "/v1/sandboxes").header("idempotency-key", "k-1").header(LEFT, "60000");
    let mut create = pin!(rig.client.send(create.body("{}".into()).unwrap()));
    let passes = async {
        stuck.arrived(1).await;
        std::fs::remove_file(rig.folder.socket("api")).unwrap();
        let other = ControlPlane::listen(&rig.folder.socket("api"));
        if refuses {
            other.refuse();
        }
        clock.pass(Duration::from_secs(21)).await;
        then(&stuck, &other, &clock).await;
        other
    };
    tokio::join!(&mut create, passes).0
}

#[tokio::test]
async fn a_replica_that_stands_still_holds_up_no_request_that_may_be_repeated() {
    let answer = asked_twice(false, async |stuck, other, clock| {
        other.arrived(1).await;
        other.release(1);
        clock.pass(Duration::from_secs(5)).await;
        // Nobody has hung up on it: it would take its caller for one that has gone.
        stuck.release(1);
        clock.settle().await;
        assert_eq!(stuck.lost(), 0);
    })
    .await;
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "created"));
    let left_ms: u64 = answer.headers[LEFT].to_str().unwrap().parse().unwrap();
    assert!((30_000..=40_000).contains(&left_ms), "{left_ms}");
}

#[tokio::test]
async fn a_refusal_of_the_second_replica_is_no_answer_while_the_first_may_give_one() {
    let answer = asked_twice(true, async |first, other, clock| {
        other.arrived(1).await;
        clock.pass(Duration::from_secs(5)).await;
        first.release(1);
    })
    .await;
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "created"));
    assert_eq!(answer.headers[LEFT], "60000");
}

#[tokio::test]
async fn what_needs_no_connection_twice_waits_a_moment_for_one() {
    let rig = Rig::new().without_controlplane().start().await;
    let clock = Stopped::now().await;
    let late = async {
        rig.client.until_metric("calls", 1.0).await;
        clock.settle().await;
        let controlplane = ControlPlane::listen(&rig.folder.socket("api"));
        clock.pass(Duration::from_millis(100)).await;
        controlplane
    };
    let request = post(&rig, "/v1/echo").body("{}".into()).unwrap();
    let (answer, _controlplane) = tokio::join!(rig.client.send(request), late);
    assert_eq!(answer.status, StatusCode::CREATED, "nothing was sent before");
}

#[tokio::test]
async fn no_path_leads_around_the_api() {
    let rig = Rig::new().start().await;
    for path in ["/v1/%2e%2e/metrics", "/v1/a/..%2fmetrics", "/v1/x/%2E/y"] {
        assert_eq!(rig.client.get(path).await.code(), "invalid_argument", "{path}");
    }
}
