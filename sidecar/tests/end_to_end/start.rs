//! The sidecar's own start and shutdown.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::UnixListener;
use wire::Code;

use crate::sandbox::{LIMIT, SANDBOX_ID, Sandbox, argv, problem, push, shell, sidecar, signed, text};

#[tokio::test]
async fn readiness_comes_after_a_command_has_run_and_until_it_is_acknowledged() {
    let sandbox = Sandbox::start_with(&[("ADVERTISE", "unix:/somewhere")]).await;
    let body = &sandbox.readiness;
    assert_eq!(sandbox.credential, "Bearer ready-credential");
    assert_eq!(
        (body["sandbox_id"].as_str(), body["address"].as_str()),
        (Some(SANDBOX_ID), Some("unix:/somewhere"))
    );
    assert!(body["kernel"].as_str().unwrap().starts_with("Linux version"));
    let time = |name: &str| body["boot_us"][name].as_u64().unwrap();
    assert!(time("target_found") <= time("entered") && time("entered") < time("probed"), "{body}");
}

#[tokio::test]
async fn a_target_that_does_not_come_is_told_and_ends_the_sidecar() {
    let directory = tempfile::TempDir::new().unwrap();
    let ready = UnixListener::bind(directory.path().join("ready.sock")).unwrap();
    let absent = directory.path().join("absent");
    let mut child = sidecar(&absent, directory.path(), &[("START_TIMEOUT_MS", "50")]).spawn().unwrap();
    let (_, body) = tokio::time::timeout(LIMIT, push(&ready, "200 OK")).await.unwrap();
    assert_eq!(body["failure"]["code"], "start_timeout");
    assert!(body["failure"]["detail"].as_str().unwrap().contains("absent"), "{body}");
    assert_eq!(child.wait().unwrap().code(), Some(70));
}

#[tokio::test]
async fn the_targets_binary_is_installed_first_and_a_failure_to_is_told() {
    let directory = tempfile::TempDir::new().unwrap();
    let ready = UnixListener::bind(directory.path().join("ready.sock")).unwrap();
    let (absent, installed) = (directory.path().join("absent"), directory.path().join("target"));
    let settings = [("START_TIMEOUT_MS", "50"), ("INSTALL", installed.to_str().unwrap())];
    let mut child = sidecar(&absent, directory.path(), &settings).spawn().unwrap();
    let (_, body) = tokio::time::timeout(LIMIT, push(&ready, "200 OK")).await.unwrap();
    assert_eq!(body["failure"]["code"], "start_timeout");
    assert!(std::process::Command::new(&installed).arg("--probe").status().unwrap().success());
    child.wait().unwrap();

    let mut child = sidecar(&absent, directory.path(), &[("INSTALL", "/no/such/target")]).spawn().unwrap();
    let (_, body) = tokio::time::timeout(LIMIT, push(&ready, "200 OK")).await.unwrap();
    assert_eq!(body["failure"]["code"], "internal");
    assert!(body["failure"]["detail"].as_str().unwrap().contains("/no/such/target"), "{body}");
    assert_eq!(child.wait().unwrap().code(), Some(70));
}

#[tokio::test]
async fn a_bad_setting_ends_it_with_64_and_a_sentence() {
    let directory = tempfile::TempDir::new().unwrap();
    let output = sidecar(directory.path(), directory.path(), &[("LISTEN", "nowhere")])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert!(sentence.contains("ROLLBOX_SIDECAR_LISTEN") && sentence.contains("nowhere"), "{sentence}");
    assert!(!directory.path().join("agent.sock").exists());
}

#[tokio::test]
async fn on_sigterm_running_calls_are_answered_and_new_ones_are_not_taken() {
    // The running call has five seconds after SIGTERM, in which a busy machine may stall; so there are several
    // attempts.
    for _ in 0..5 {
        if answered_after_sigterm().await {
            return;
        }
    }
    panic!("the shutdown does not wait for a running call");
}

/// Whether a running call was answered; `false`: its grace period was over before.
async fn answered_after_sigterm() -> bool {
    let mut sandbox = Sandbox::start().await;
    let mut client = sandbox.client.clone();
    let command = "touch begun; until test -e go; do sleep 0.05; done; echo answered";
    let running = tokio::spawn(async move { client.exec(signed(shell(command))).await });
    sandbox.until("ls begun 2> /dev/null; true", "begun\n").await;
    kill(Pid::from_raw(sandbox.sidecar.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    while sandbox.client.clone().exec(signed(argv(&["true"]))).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if running.is_finished() {
        return false;
    }
    std::fs::write(sandbox.directory.path().join("go"), "").unwrap();
    let answer = running.await.unwrap();
    assert_eq!(sandbox.ended().await.code(), Some(0));
    answer.is_ok_and(|answer| text(&answer.into_inner()) == "answered\n")
}

#[tokio::test]
async fn a_request_is_checked_before_anything_is_done() {
    let sandbox = Sandbox::start().await;
    let request = wire::agent::ExecRequest { command: "true".into(), ..argv(&["true"]) };
    let status = sandbox.client.clone().exec(signed(request)).await.unwrap_err();
    assert_eq!(problem(&status).code, Code::InvalidArgument);
}
