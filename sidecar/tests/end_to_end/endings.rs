//! How commands end, and what is left of them.

use std::time::{Duration, Instant};

use wire::Code;
use wire::agent::{End, ExecRequest, SignalRequest};

use crate::sandbox::{PATIENCE, Sandbox, argv, problem, shell, signed, text, within};

/// A daemon as daemons are: its own session, its parents gone, its streams closed.
const DAEMON: &str = "(setsid sh -c 'sleep 4321 </dev/null >/dev/null 2>&1 & ' &) ; sleep 0.2; ";
const COUNT: &str = "pgrep -cx sleep; true";

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    let sandbox = Sandbox::start().await;
    let result = sandbox.exec(shell("exit 7")).await.unwrap();
    assert_eq!((result.end(), result.exit_code, result.signal), (End::Exited, 7, 0));
    for signal in [15, 9, 34] {
        let result = sandbox.exec(shell(&format!("kill -{signal} $$"))).await.unwrap();
        assert_eq!((result.end(), result.signal), (End::Signalled, signal));
    }
}

#[tokio::test]
async fn a_deadline_kills_the_whole_tree_and_keeps_what_was_written() {
    let sandbox = Sandbox::start().await;
    let other = sandbox.client.clone().start(signed(argv(&["sleep", "1234"]))).await.unwrap();
    let stubborn = format!(
        "{DAEMON} echo partial; (sleep 1000 & sleep 1001) & trap '' TERM INT; while :; do sleep 1; done"
    );
    within(Duration::from_secs(8), async || {
        let request = ExecRequest { timeout_ms: 3000, ..shell(&stubborn) };
        let result = sandbox.exec(request).await.unwrap();
        assert_eq!((result.end(), text(&result).as_str()), (End::Deadline, "partial\n"));
        assert_eq!(sandbox.sh(COUNT).await, "1\n", "only the other command is left");
    })
    .await;
    sandbox.cancel(&other.into_inner().exec_id).await.unwrap();
    assert_eq!(sandbox.sh(COUNT).await, "0\n");
}

#[tokio::test]
async fn a_daemon_neither_holds_the_answer_nor_becomes_a_zombie() {
    let sandbox = Sandbox::start().await;
    let began = Instant::now();
    let result = sandbox.exec(shell("sleep 30 & echo done")).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "the daemon holds the pipes, not the answer");
    assert_eq!(text(&result), "done\n");
    for _ in 0..20 {
        sandbox.sh("(sh -c 'true &' &) ; true").await;
    }
    sandbox.until("cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z '; true", "0\n").await;
}

#[tokio::test]
async fn cancel_kills_at_once_and_may_be_repeated() {
    let sandbox = Sandbox::start().await;
    let request = shell(&format!("{DAEMON} echo begun; sleep 1000"));
    let exec_id = request.exec_id.clone();
    let (client, waiting) = (sandbox.client.clone(), request.clone());
    let waiter =
        tokio::spawn(async move { client.clone().exec(signed(waiting)).await.unwrap().into_inner() });
    sandbox.until("pgrep -cfx 'sleep (1000|4321)'; true", "2\n").await;
    let result = sandbox.cancel(&exec_id).await.unwrap();
    assert_eq!((result.end(), text(&result).as_str(), result.replayed), (End::Cancelled, "begun\n", false));
    assert_eq!(waiter.await.unwrap().end(), End::Cancelled);
    assert_eq!(sandbox.sh(COUNT).await, "0\n");
    assert!(sandbox.cancel(&exec_id).await.unwrap().replayed);
    assert_eq!(sandbox.cancel("never-was").await.unwrap_err().code, Code::ExecNotFound);
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_is_cancelled_after_the_grace() {
    let sandbox = Sandbox::start_with(&[("ORPHAN_GRACE_MS", "5000")]).await;
    let request = argv(&["sleep", "1000"]);
    tokio::select! {
        ended = sandbox.exec(request.clone()) => panic!("{ended:?}"),
        () = sandbox.until(COUNT, "1\n") => {}
    }
    assert_eq!(sandbox.sh(COUNT).await, "1\n");
    sandbox.until(COUNT, "0\n").await;
    let result = sandbox.exec(request).await.unwrap();
    assert_eq!((result.end(), result.replayed), (End::Cancelled, true));
}

#[tokio::test]
async fn a_signal_goes_to_the_process_or_to_its_tree() {
    let sandbox = Sandbox::start().await;
    let request = shell("trap 'echo caught; exit 3' TERM; echo ready; sleep 1000 & wait");
    let exec_id = request.exec_id.clone();
    let mut client = sandbox.client.clone();
    client.start(signed(request.clone())).await.unwrap();
    sandbox.until(COUNT, "1\n").await;
    client.signal(signed(SignalRequest { exec_id: exec_id.clone(), signal: 15, tree: false })).await.unwrap();
    let result = sandbox.exec(request).await.unwrap();
    assert_eq!((result.exit_code, text(&result).as_str()), (3, "ready\ncaught\n"));
    let late = client.signal(signed(SignalRequest { exec_id, signal: 15, tree: false })).await.unwrap_err();
    assert_eq!(problem(&late).code, Code::Conflict);

    let request = shell("sleep 1001 & sleep 1002 & wait");
    client.start(signed(request.clone())).await.unwrap();
    sandbox.until(COUNT, "3\n").await;
    client.signal(signed(SignalRequest { exec_id: request.exec_id, signal: 9, tree: true })).await.unwrap();
    sandbox.until("pgrep -f 'sleep 100[12]' | wc -l", "0\n").await;
}

#[tokio::test]
async fn who_has_shed_session_and_marker_is_killed_as_a_child() {
    let sandbox = Sandbox::start().await;
    for _ in 0..5 {
        let request = shell("env -i setsid sleep 4321 & (env -i setsid sleep 4322 & wait) & wait");
        sandbox.client.clone().start(signed(request.clone())).await.unwrap();
        sandbox.until(COUNT, "2\n").await;
        assert_eq!(sandbox.cancel(&request.exec_id).await.unwrap().end(), End::Cancelled);
        assert_eq!(sandbox.sh(COUNT).await, "0\n");
    }
}

#[tokio::test]
async fn a_fork_bomb_is_killed() {
    let sandbox = Sandbox::start().await;
    let bomb = "import os,time\nfor _ in range(300):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(999)\ntime.sleep(999)";
    let request = ExecRequest { timeout_ms: 1500, ..argv(&["python3", "-c", bomb]) };
    assert_eq!(sandbox.exec(request).await.unwrap().end(), End::Deadline);
    // All are dead; the last ones are reaped between other work.
    sandbox.until("pgrep -c python3; true", "0\n").await;
}

#[tokio::test]
async fn nothing_outlives_the_sidecar() {
    let mut sandbox = Sandbox::start().await;
    let marker = format!("{}", 100_000 + std::process::id());
    sandbox.client.clone().start(signed(argv(&["sleep", &marker]))).await.unwrap();
    let alive = || {
        std::process::Command::new("pgrep")
            .args(["-f", &format!("^sleep {marker}")])
            .status()
            .unwrap()
            .success()
    };
    let began = Instant::now();
    while !alive() {
        assert!(began.elapsed() < PATIENCE, "it does not begin");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sandbox.sidecar.0.kill().unwrap();
    sandbox.sidecar.0.wait().unwrap();
    let began = Instant::now();
    while alive() {
        assert!(began.elapsed() < PATIENCE, "a command has outlived its sidecar");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
