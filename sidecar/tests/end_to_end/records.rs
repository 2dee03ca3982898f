//! Repeated exec ids, credentials, lists, load.

use wire::Code;
use wire::agent::{ExecRequest, HealthRequest, ListRequest};

use crate::sandbox::{LIMIT, SANDBOX_ID, Sandbox, argv, problem, shell, signed, text, token, with_token};

#[tokio::test]
async fn the_same_id_runs_once_whether_it_still_runs_or_has_ended() {
    let sandbox = Sandbox::start().await;
    let request = shell("until test -e go; do sleep 0.05; done; echo ran | tee -a count");
    // Calls of one connection are handled in order: when the third one is answered, the second has joined the first.
    let (first, second, _) =
        tokio::join!(sandbox.exec(request.clone()), sandbox.exec(request.clone()), sandbox.sh("touch go"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.replayed, second.replayed), (false, false), "the second joined the running one");
    let third = sandbox.exec(request.clone()).await.unwrap();
    assert!(third.replayed);
    assert_eq!((text(&first), text(&second), text(&third)), ("ran\n".into(), "ran\n".into(), "ran\n".into()));
    assert_eq!(sandbox.sh("cat count").await, "ran\n");
    let other = ExecRequest { exec_id: request.exec_id, ..argv(&["true"]) };
    assert_eq!(sandbox.exec(other).await.unwrap_err().code, Code::Conflict);
}

#[tokio::test]
async fn only_the_sandboxs_own_living_token_opens() {
    let sandbox = Sandbox::start().await;
    let mut client = sandbox.client.clone();
    let began = std::time::Instant::now();
    for (token, code) in [
        (token(SANDBOX_ID, -1), Code::Unauthenticated),
        (token("sb-other", 600), Code::PermissionDenied),
        ("not.a.token".to_owned(), Code::Unauthenticated),
    ] {
        let status = client.exec(with_token(argv(&["true"]), &token)).await.unwrap_err();
        assert_eq!(problem(&status).code, code);
    }
    let missing = client.list(tonic::Request::new(ListRequest {})).await.unwrap_err();
    assert_eq!(
        (problem(&missing).code, missing.code()),
        (Code::Unauthenticated, tonic::Code::Unauthenticated)
    );
    let refused = began.elapsed();
    let health = client.health(signed(HealthRequest {})).await.unwrap().into_inner();
    assert!(u128::from(health.quiet_us.unwrap()) >= refused.as_micros(), "a refused call counts as no use");
}

#[tokio::test]
async fn lists_and_health() {
    let sandbox = Sandbox::start().await;
    let mut client = sandbox.client.clone();
    sandbox.sh("echo 12345").await;
    let running = client.start(signed(argv(&["sleep", "1000"]))).await.unwrap().into_inner();
    let execs = client.list(signed(ListRequest {})).await.unwrap().into_inner().execs;
    assert_eq!(
        (execs[0].exec_id.as_str(), execs[0].running, execs[0].pid),
        (running.exec_id.as_str(), true, running.pid)
    );
    assert_eq!((execs[1].running, execs[1].stdout_bytes), (false, 6));
    assert_eq!(execs[0].ended_at_ms, 0);
    assert!(
        (execs[1].started_at_ms..=execs[0].started_at_ms + 1).contains(&execs[1].ended_at_ms),
        "{execs:?}"
    );
    let mut health = client.health(signed(HealthRequest {})).await.unwrap().into_inner();
    // The control plane's answer to the readiness push may still be in transit.
    let began = std::time::Instant::now();
    while !health.acknowledged && began.elapsed() < LIMIT {
        health = client.health(signed(HealthRequest {})).await.unwrap().into_inner();
    }
    assert_eq!((health.sandbox_id.as_str(), health.running_execs), (SANDBOX_ID, 1));
    assert!(health.kernel.starts_with("Linux version") && health.acknowledged);
}

#[tokio::test]
async fn sixty_four_at_once_do_not_mix() {
    let sandbox = Sandbox::start().await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..64 {
        let mut client = sandbox.client.clone();
        let request = shell(&format!("sleep 0.2; echo {n}; cat"));
        let request = ExecRequest { stdin: format!("input {n}").into(), ..request };
        calls.spawn(async move { (n, client.exec(signed(request)).await.unwrap().into_inner()) });
    }
    while let Some(done) = calls.join_next().await {
        let (n, result) = done.unwrap();
        assert_eq!(text(&result), format!("{n}\ninput {n}"));
    }
}
