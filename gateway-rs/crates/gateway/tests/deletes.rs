//! Deletes are answered once this gateway has heard of the ends, so that no later call reaches a deleted sandbox.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::pin::{Pin, pin};
use std::time::Duration;

use axum::body::Body;
use http::Method;
use serde_json::{Value, json};
use support::clock::Stopped;
use support::creates::{Creates, problem};
use support::{Answer, Rig, Started};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// A small part of the wait for an end.
const STEP: Duration = Duration::from_millis(100);

/// The wait for an end, and some steps in which the request and its answer arrive.
const WAITED: Duration = Duration::from_millis(1500);

/// What deletes many.
const MANY: [&str; 3] = ["/v1/sandboxes?label=run=1", "/v1/sandboxes?idempotency_key=k", "/v1/groups/g"];

async fn delete(rig: &Started, path: &str) -> Answer {
    rig.client.send(rig.client.request(Method::DELETE, path).body(Body::empty()).unwrap()).await
}

/// Asserts that a delete stays unanswered while everything arrives that is on its way.
async fn is_held(clock: &Stopped, mut deleted: Pin<&mut impl Future<Output = Answer>>) {
    let settled = async {
        for _ in 0..10 {
            clock.settle().await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut deleted => panic!("answered before the end was known"),
        () = settled => {}
    }
}

/// A gateway with two sandboxes, and a control plane that answers every request with this.
async fn started(status: u16, body: &Value) -> (Started, Creates) {
    let rig = Rig::new().without_controlplane().sandbox("sb-1").sandbox("sb-2");
    let controlplane = Creates::listen(&rig.socket("api"), vec![(status, body.clone()); 8]);
    (rig.start().await, controlplane)
}

#[tokio::test]
async fn a_delete_is_answered_once_its_end_is_known_here() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let clock = Stopped::now().await;
    {
        let mut deleted = pin!(delete(&rig, "/v1/sandboxes/sb-1"));
        is_held(&clock, deleted.as_mut()).await;
        rig.feed().end("sb-1", 1, "deleted");
        assert!(deleted.await.status.is_success());
    }
    drop(clock);
    assert_eq!(rig.run("sb-1", "echo hi").await.code(), "deleted");
    assert!(delete(&rig, "/v1/sandboxes/sb-1").await.status.is_success());
}

#[tokio::test]
async fn a_delete_of_many_is_answered_once_all_their_ends_are_known_here() {
    // An end that the cluster has not confirmed is an end as well; of sb-9 this gateway has never heard.
    let failed = json!([{"id": "sb-2", "code": "upstream_timeout", "detail": "said \"no\""}]);
    let body = json!({"deleted": ["sb-1", "sb-9"], "failed": failed});
    for path in MANY {
        let (rig, _controlplane) = started(200, &body).await;
        let clock = Stopped::now().await;
        {
            let mut deleted = pin!(delete(&rig, path));
            is_held(&clock, deleted.as_mut()).await;
            rig.feed().end("sb-1", 1, "deleted");
            is_held(&clock, deleted.as_mut()).await;
            rig.feed().end("sb-2", 1, "deleted");
            let answer = deleted.await;
            assert_eq!((answer.status.as_u16(), answer.json()), (200, body.clone()), "{path}");
            assert_eq!(answer.headers["x-answer"], "kept");
        }
        drop(clock);
        for id in ["sb-1", "sb-2"] {
            assert_eq!(rig.run(id, "echo hi").await.code(), "deleted", "{path}");
        }
    }
}

#[tokio::test]
async fn a_feed_that_does_not_bring_the_ends_holds_the_answer_back_for_a_moment_only() {
    let (rig, _controlplane) = started(200, &json!({"deleted": ["sb-1", "sb-2"], "failed": []})).await;
    let clock = Stopped::now().await;
    for path in ["/v1/sandboxes/sb-1"].into_iter().chain(MANY) {
        let (answer, waited) = clock.until(STEP, delete(&rig, path)).await;
        assert_eq!(answer.status.as_u16(), 200, "{path}");
        assert!(waited < WAITED, "{path}: {waited:?}");
    }
}

#[tokio::test]
async fn a_delete_of_many_that_fails_or_cannot_be_read_is_answered_at_once() {
    for (status, body) in
        [(404, problem("not_found", json!({}))), (200, json!(["sb-1"])), (200, json!({"deleted": [7]}))]
    {
        let (rig, _controlplane) = started(status, &body).await;
        let _clock = Stopped::now().await;
        for path in MANY {
            let answer = delete(&rig, path).await;
            assert_eq!((answer.status.as_u16(), answer.json()), (status, body.clone()), "{path}");
        }
    }
}

/// Answers one request with the head of an answer and the first byte of its body, and nothing more.
async fn stops_sending(listener: UnixListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.read(&mut [0; 4096]).await.unwrap();
    let begun = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(begun).await.unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn an_answer_that_stops_coming_is_given_up() {
    let rig = Rig::new().without_controlplane().sandbox("sb-1");
    let controlplane = tokio::spawn(stops_sending(UnixListener::bind(rig.socket("api")).unwrap()));
    let rig = rig.start().await;
    let clock = Stopped::now().await;
    let (answer, waited) = clock.until(STEP, delete(&rig, "/v1/groups/g")).await;
    assert_eq!(answer.code(), "upstream_timeout");
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    controlplane.abort();
}
