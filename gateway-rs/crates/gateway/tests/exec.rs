//! `POST .../exec` and the calls about execs: answers, refusals, and what reaches the sidecar.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use support::clock::Stopped;
use support::{Client, Rig, token_of};
use wire::Code;

#[tokio::test]
async fn a_command_runs_and_its_result_comes_back() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let _clock = Stopped::now().await;
    let answer = rig.run("sb-1", "echo hello").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/json");
    let result = answer.json();
    assert_eq!(
        (&result["end"], &result["exit_code"], &result["stdout"]),
        (&json!("exited"), &json!(0), &json!("hello"))
    );
    assert_eq!((&result["spawn_ms"], &result["run_ms"]), (&json!(0.9), &json!(1.5)));
    assert_eq!(result["exec_id"].as_str().unwrap().len(), 36, "made by the gateway");
    assert_eq!(result["queue_ms"], json!(0.0), "it did not wait for a permit");
}

#[tokio::test]
async fn the_request_and_the_token_reach_the_sidecar_as_they_are() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let body = json!({"exec_id": "e-1", "command": "cat", "cwd": "/tmp", "env": {"A": "1"}, "user": "nobody",
        "stdin": "aGk=", "stdin_encoding": "base64", "timeout_ms": 5000, "max_output_bytes": 100});
    assert_eq!(rig.exec("sb-1", &body).await.json()["stdout"], "hi");
    let seen = rig.sidecar("sb-1").seen(1).await.remove(0);
    assert_eq!((seen.exec_id.as_str(), seen.cwd.as_str(), seen.user.as_str()), ("e-1", "/tmp", "nobody"));
    assert_eq!((seen.timeout_ms, seen.max_output_bytes, seen.env["A"].as_str()), (5000, 100, "1"));
    assert_eq!(rig.sidecar("sb-1").last_token(), format!("Bearer {}", token_of("sb-1", "alice", &["exec"])));
}

#[tokio::test]
async fn a_failure_of_the_command_is_a_result() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    assert_eq!(rig.run("sb-1", "exit 3").await.json()["exit_code"], 3);
    for end in ["SIGNALLED", "DEADLINE", "OOM_KILLED", "CANCELLED"] {
        let answer = rig.run("sb-1", &format!("killed {end}")).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(
            (&answer.json()["end"], &answer.json()["stdout"]),
            (&json!(end.to_lowercase()), &json!("partial"))
        );
    }
}

#[tokio::test]
async fn output_that_is_no_text_comes_as_base64() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let result = rig.run("sb-1", "bytes").await.json();
    assert_eq!((&result["stdout"], &result["stdout_encoding"]), (&json!("//4="), &json!("base64")));
}

#[tokio::test]
async fn sixteen_mebibytes_pass_in_both_directions() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let stdin = "x".repeat(16 << 20);
    let answer = rig.exec("sb-1", &json!({"command": "cat", "stdin": &stdin})).await;
    assert!(answer.json()["stdout"] == stdin);
}

#[tokio::test]
async fn what_a_sandbox_uses_is_told_and_a_limit_that_is_none_is_null() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let token = token_of("sb-1", "alice", &["exec"]);
    let answer = rig.client.call(Method::GET, "/v1/sandboxes/sb-1/usage", &token).await;
    assert_eq!(answer.status, StatusCode::OK);
    let expected = json!({"cpu_ms": 1.5, "cpu_counted_by": "node", "memory_bytes": 1 << 20,
        "memory_files_bytes": 4096, "memory_limit_bytes": 2 << 20, "disk_bytes": null, "disk_limit_bytes": null, "processes": 3,
        "processes_limit": null});
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn cpu_time_that_gvisor_has_counted_is_asked_of_the_node_and_marked_where_no_node_says_it() {
    let rig = Rig::new()
        .sandbox("sb-gvisor")
        .sandbox("sb-before")
        .sandbox("sb-gvisor-alone")
        .sandbox("sb-1")
        .start()
        .await;
    // What Linux has counted is right, whatever else is said.
    for (id, cpu_us) in [("sb-gvisor", 2_491_000), ("sb-before", 7_000), ("sb-1", 9_000)] {
        rig.feed().count(id, cpu_us);
    }
    for (id, cpu_ms, by) in [
        ("sb-gvisor", 2491.0, "node"),
        ("sb-before", 7.0, "node"),
        ("sb-gvisor-alone", 1.5, "sandbox"),
        ("sb-1", 1.5, "node"),
    ] {
        let path = format!("/v1/sandboxes/{id}/usage");
        let told = rig.client.call(Method::GET, &path, &token_of(id, "alice", &["exec"])).await.json();
        assert_eq!(
            (told["cpu_ms"].as_f64(), told["cpu_counted_by"].as_str()),
            (Some(cpu_ms), Some(by)),
            "{id}"
        );
    }
}

#[tokio::test]
async fn every_problem_of_the_sidecar_comes_through_unchanged() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    for code in Code::ALL {
        let answer = rig.run("sb-1", &format!("problem {}", code.name())).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (code.http(), code.name()));
        assert_eq!(answer.json()["details"]["reason"], "fake");
        assert_eq!(answer.headers.contains_key("retry-after"), answer.json()["retry_after_ms"].is_u64());
    }
    assert_eq!(rig.run("sb-1", "nonsense").await.code(), "internal");
}

#[tokio::test]
async fn only_the_bearer_of_this_sandboxs_token_may() {
    let rig = Rig::new().sandbox("sb-1").sandbox("sb-2").start().await;
    let body = || json!({"command": "echo hi"}).to_string();
    for (token, code) in [
        (token_of("sb-2", "alice", &["exec"]), "permission_denied"),
        (token_of("sb-1", "alice", &["ready"]), "permission_denied"),
        ("rbx_apikey".to_owned(), "unauthenticated"),
        (String::new(), "unauthenticated"),
        (token::Signer::from_seed([9; 32]).sign(&claims("sb-1", support::FAR_S)), "unauthenticated"),
        (support::signer().sign(&claims("sb-1", 1)), "unauthenticated"),
    ] {
        assert_eq!(rig.client.exec("sb-1", &token, body()).await.code(), code, "{token}");
        assert_eq!(rig.client.call(Method::GET, "/v1/sandboxes/sb-1/execs", &token).await.code(), code);
        assert_eq!(
            rig.client.call(Method::DELETE, "/v1/sandboxes/sb-1/execs/e-1", &token).await.code(),
            code
        );
    }
    let request = rig.client.request(Method::POST, "/v1/sandboxes/sb-1/exec").body(body().into()).unwrap();
    assert_eq!(rig.client.send(request).await.code(), "unauthenticated");
    assert_eq!(rig.sidecar("sb-1").seen_now(), 0);
}

fn claims(sandbox_id: &str, expires_at_s: u64) -> token::Claims {
    let scopes = vec!["exec".to_owned()].into();
    token::Claims {
        sandbox_id: sandbox_id.into(),
        owner: "alice".into(),
        scopes,
        expires_at_s,
        settings: None,
    }
}

#[tokio::test]
async fn a_wrong_body_names_its_place_and_starts_nothing() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let token = token_of("sb-1", "alice", &["exec"]);
    let answer = rig.client.exec("sb-1", &token, "{\"command\": \"a\",\n \"timeout\": 5}").await;
    assert_eq!(answer.code(), "invalid_argument");
    assert_eq!(answer.json()["details"]["field"], "timeout");
    assert_eq!(answer.json()["details"]["line"], "2");
    for body in ["", "{", "[]", "null", "{\"command\": \"a\"} x", "{\"argv\": []}"] {
        assert_eq!(rig.client.exec("sb-1", &token, body).await.code(), "invalid_argument", "{body}");
    }
    assert_eq!(rig.sidecar("sb-1").seen_now(), 0);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let rig = Rig::new().sandbox("sb-1").set("MAX_BODY_BYTES", 2048).start().await;
    let answer = rig.exec("sb-1", &json!({"command": "cat", "stdin": "x".repeat(2048)})).await;
    assert_eq!(
        (answer.code().as_str(), &answer.json()["details"]["limit_bytes"]),
        ("payload_too_large", &json!("2048"))
    );
}

#[tokio::test]
async fn running_execs_are_listed_and_cancelled() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let token = token_of("sb-1", "alice", &["exec"]);
    let start = rig.client.request(Method::POST, "/v1/sandboxes/sb-1/execs");
    let start = start.header("authorization", format!("Bearer {token}"));
    let body = json!({"exec_id": "e-1", "command": "stay"}).to_string();
    assert_eq!(rig.client.send(start.body(body.into()).unwrap()).await.status, StatusCode::OK);
    let list = rig.client.call(Method::GET, "/v1/sandboxes/sb-1/execs", &token).await.json();
    assert_eq!((&list["execs"][0]["exec_id"], &list["execs"][0]["running"]), (&json!("e-1"), &json!(true)));
    let cancelled = rig.client.call(Method::DELETE, "/v1/sandboxes/sb-1/execs/e-1", &token).await.json();
    assert_eq!(
        (&cancelled["end"], &cancelled["exec_id"], &cancelled["signal"]),
        (&json!("cancelled"), &json!("e-1"), &json!(9))
    );
    let all = rig.client.call(Method::DELETE, "/v1/sandboxes/sb-1/execs", &token).await.json();
    assert_eq!(all, json!({"cancelled": 0, "left": 0}));
    let unknown = rig.client.call(Method::DELETE, "/v1/sandboxes/sb-1/execs/unknown", &token).await;
    assert_eq!(unknown.code(), "exec_not_found");
    let bad = rig.client.call(Method::DELETE, "/v1/sandboxes/sb-1/execs/a%20b", &token).await;
    assert_eq!(bad.code(), "invalid_argument");
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_call_to_the_sidecar_along() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(3600), rig.run("sb-1", "hang"));
    let mut waiting = Box::pin(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("the command should hang"),
        _ = rig.sidecar("sb-1").seen(1) => {}
    }
    drop(waiting);
    rig.sidecar("sb-1").dropped(1).await;
    rig.client.until_metric("exec_inflight", 0.0).await;
}

#[tokio::test]
async fn many_calls_share_one_connection_over_either_protocol() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    let token = token_of("sb-1", "alice", &["exec"]);
    let http2 = Client::http2(rig.client.address);
    let body = json!({"command": "echo hi"}).to_string();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..40 {
        let client = if n % 2 == 0 { rig.client.clone() } else { http2.clone() };
        let (token, body) = (token.clone(), body.clone());
        calls.spawn(async move { client.exec("sb-1", &token, body).await.json() });
    }
    assert!(calls.join_all().await.iter().all(|result: &Value| result["stdout"] == "hi"));
    assert_eq!(rig.sidecar("sb-1").served.connections(), 1);
    rig.client.until_metric("upstream_connections", 1.0).await;
}

#[tokio::test]
async fn a_sane_request_id_comes_back_and_another_is_replaced() {
    let rig = Rig::new().sandbox("sb-1").start().await;
    for (given, kept) in [("run-7", true), ("a b", false)] {
        let request = rig.client.request(Method::GET, "/healthz").header("x-request-id", given);
        let answer = rig.client.send(request.body(axum::body::Body::empty()).unwrap()).await;
        assert_eq!(answer.headers["x-request-id"] == given, kept);
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_too() {
    let rig = Rig::new().start().await;
    assert_eq!(rig.client.get("/nothing").await.code(), "invalid_argument");
    assert_eq!(rig.client.get("/v1/sandboxes/sb-1/exec").await.code(), "invalid_argument");
    assert_eq!(rig.client.get("/v1/sandboxes/%ff/execs").await.code(), "invalid_argument");
    assert_eq!(rig.client.get("/healthz").await.text(), "ok\n");
}
