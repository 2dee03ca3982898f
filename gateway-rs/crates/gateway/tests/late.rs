//! Late settings: bound at the sidecar, before a create is answered; the control plane gets a digest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use support::clock::Stopped;
use support::creates::{Creates, Sent, made, problem};
use support::{Answer, Rig, Started};

const IDS: [&str; 2] = ["sb-1", "sb-2"];

/// A gateway with two sandboxes, and a control plane with a script.
async fn started(script: Vec<(u16, Value)>) -> (Started, Creates) {
    let rig = IDS.iter().fold(Rig::new().without_controlplane(), |rig, id| rig.sandbox(id));
    let controlplane = Creates::listen(&rig.socket("api"), script);
    (rig.start().await, controlplane)
}

async fn create(rig: &Started, body: &Value) -> Answer {
    create_by(rig, body.to_string()).await
}

async fn create_by(rig: &Started, body: String) -> Answer {
    let request = rig.client.request(Method::POST, "/v1/sandboxes").header("authorization", "Bearer rbx_key");
    let request = request.header("idempotency-key", "k").header("content-type", "application/json");
    rig.client.send(request.body(body.into()).unwrap()).await
}

fn with_secret() -> Value {
    json!({"image": "i", "env": {"SECRET": "hush"}, "cwd": "/work", "user": "bob"})
}

fn lines(sent: &[Sent]) -> Vec<&str> {
    sent.iter().map(|sent| sent.line.as_str()).collect()
}

#[tokio::test]
async fn settings_go_to_the_sidecar_and_their_digest_to_the_control_plane() {
    let (rig, controlplane) = started(vec![(201, made("sb-1")), (200, made("sb-1"))]).await;
    for status in [201, 200] {
        let answer = create(&rig, &with_secret()).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (status, made("sb-1")));
        assert_eq!(answer.headers["x-answer"], "kept");
    }
    let sent = controlplane.sent();
    assert!(
        sent.iter()
            .all(|sent| !sent.body.contains("hush") && sent.headers["authorization"] == "Bearer rbx_key")
    );
    let told = sent[0].json();
    let digest = told["settings_digest"].as_str().unwrap();
    assert_eq!(told, json!({"image": "i", "settings_digest": digest}));
    assert_eq!(sent[1].json(), told, "a repetition is compared by it");
    let bound = rig.sidecar("sb-1").bound();
    assert_eq!(bound.len(), 2);
    let (request, token) = &bound[0];
    assert_eq!(
        (request.env["SECRET"].as_str(), request.cwd.as_str(), request.user.as_str()),
        ("hush", "/work", "bob")
    );
    assert_eq!(request.digest, digest);
    assert_eq!(*token, format!("Bearer {}", made("sb-1")["token"].as_str().unwrap()));
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    assert_eq!(rig.sidecar("sb-1").served.connections(), 1, "the exec takes the connection of the binding");
}

#[tokio::test]
async fn settings_that_are_given_twice_reach_nobody() {
    let (rig, controlplane) = started(vec![]).await;
    let answer = create_by(&rig, r#"{"image": "i", "env": {"SECRET": "hush"}, "env": {}}"#.to_owned()).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, "invalid_argument".to_owned()));
    assert_eq!(answer.json()["details"]["field"], "env");
    assert!(controlplane.sent().is_empty() && rig.sidecar("sb-1").bound().is_empty());
}

#[tokio::test]
async fn what_has_no_settings_is_forwarded_as_it_came() {
    let (rig, controlplane) = started(vec![(201, made("sb-1")); 2]).await;
    for body in [json!({"image": "i"}), json!({"image": "i", "env": {}})] {
        assert_eq!(create(&rig, &body).await.json(), made("sb-1"));
        assert_eq!(controlplane.sent().pop().unwrap().json(), body);
    }
    assert!(rig.sidecar("sb-1").bound().is_empty());
}

#[tokio::test]
async fn every_member_of_a_group_is_bound_that_has_a_sandbox() {
    let members: Vec<Value> = [Some("sb-1"), None, Some("sb-2")]
        .iter()
        .map(|id| json!({"sandbox": id.map(made), "problem": null}))
        .collect();
    let (rig, controlplane) = started(vec![(200, json!({"name": "g", "members": members}))]).await;
    let body = json!({"count": 3, "partial": true, "sandbox": with_secret()}).to_string();
    let request = rig.client.request(Method::PUT, "/v1/groups/g").body(body.into()).unwrap();
    assert_eq!(rig.client.send(request).await.json()["members"], json!(members));
    assert!(!controlplane.sent()[0].body.contains("hush"));
    for id in IDS {
        assert_eq!(rig.sidecar(id).bound()[0].0.env["SECRET"], "hush");
    }
}

#[tokio::test]
async fn settings_that_cannot_be_are_the_answer_and_are_reported() {
    let refusal = problem("invalid_argument", json!({"reason": "user_not_found", "ended": "true"}));
    let (rig, controlplane) = started(vec![(201, made("sb-1")), (400, refusal)]).await;
    let answer = create(&rig, &json!({"image": "i", "env": {"FAKE": "problem invalid_argument"}})).await;
    assert_eq!(
        (answer.code().as_str(), &answer.json()["details"]["reason"]),
        ("invalid_argument", &json!("user_not_found"))
    );
    let sent = controlplane.sent();
    assert_eq!(lines(&sent), ["POST /v1/sandboxes", "POST /v1/sandboxes/sb-1/unbound"]);
    assert_eq!(sent[1].headers["authorization"], "Bearer rbx_key");
    let told = sent[1].json();
    assert_eq!((&told["code"], &told["details"]["reason"]), (&json!("invalid_argument"), &json!("fake")));
}

#[tokio::test]
async fn a_sandbox_that_does_not_answer_is_replaced_where_the_control_plane_says_so() {
    let (mut rig, controlplane) =
        started(vec![(201, made("sb-1")), (204, Value::Null), (201, made("sb-2"))]).await;
    drop(rig.sidecars.remove("sb-1"));
    let answer = create(&rig, &with_secret()).await;
    assert_eq!(answer.json()["id"], "sb-2");
    let sent = controlplane.sent();
    assert_eq!(lines(&sent), ["POST /v1/sandboxes", "POST /v1/sandboxes/sb-1/unbound", "POST /v1/sandboxes"]);
    assert_eq!(sent[1].json()["code"], "sandbox_unreachable");
    let replaced = [&sent[0], &sent[2]].map(|sent| sent.headers.get("sandboxes-replaced").cloned());
    assert_eq!(replaced, [None, Some(http::HeaderValue::from_static("1"))]);
    assert_eq!(rig.sidecar("sb-2").bound().len(), 1);
}

#[tokio::test]
async fn a_sidecar_that_hangs_costs_three_seconds() {
    let away = problem("sandbox_unreachable", json!({}));
    let (rig, controlplane) = started(vec![(201, made("sb-1")), (502, away)]).await;
    let clock = Stopped::now().await;
    let body = json!({"image": "i", "env": {"FAKE": "hang"}});
    let (answer, took) = clock.until(Duration::from_millis(500), create(&rig, &body)).await;
    assert_eq!(answer.code(), "sandbox_unreachable");
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(10), "{took:?}");
    assert!(controlplane.sent()[1].json()["detail"].as_str().unwrap().contains("within 3 s"));
}

#[tokio::test]
async fn a_member_that_cannot_be_bound_is_what_the_group_says_when_it_is_repeated() {
    let group = |member: Value| json!({"name": "g", "members": [member]});
    let ended = json!({"sandbox": null, "problem": problem("invalid_argument", json!({}))});
    let (rig, controlplane) = started(vec![
        (200, group(json!({"sandbox": made("sb-1"), "problem": null}))),
        (400, problem("invalid_argument", json!({"ended": "true"}))),
        (200, group(ended.clone())),
    ])
    .await;
    let body = json!({"count": 1, "sandbox": {"image": "i", "env": {"FAKE": "problem invalid_argument"}}});
    let request = rig.client.request(Method::PUT, "/v1/groups/g").body(body.to_string().into()).unwrap();
    assert_eq!(rig.client.send(request).await.json(), group(ended));
    assert_eq!(controlplane.sent().len(), 3);
}

#[tokio::test]
async fn a_refused_create_is_answered_as_it_is() {
    let refused = problem("quota_exceeded", json!({"limit": "3"}));
    let (rig, _controlplane) = started(vec![(429, refused.clone())]).await;
    let answer = create(&rig, &with_secret()).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (429, refused));
}

#[tokio::test]
async fn settings_that_are_not_valid_do_not_leave_the_gateway() {
    let (rig, controlplane) = started(Vec::new()).await;
    for body in [json!({"env": {"A": 1}}), json!({"cwd": "work"}), json!({"settings_digest": "0"}), json!([])]
    {
        assert_eq!(create(&rig, &body).await.code(), "invalid_argument");
    }
    let report = rig.client.request(Method::POST, "/v1/sandboxes/sb-1/unbound").body("{}".into()).unwrap();
    assert_eq!(rig.client.send(report).await.code(), "invalid_argument", "only gateways report");
    assert!(controlplane.sent().is_empty());
}
