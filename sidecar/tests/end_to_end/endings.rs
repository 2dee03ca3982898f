//! How commands end, and what is left of them.

use std::time::{Duration, Instant};

use wire::Code;
use wire::agent::attach_event::Event;
use wire::agent::{AttachRequest, End, ExecRequest, SignalRequest};

use crate::sandbox::{LIMIT, Sandbox, argv, problem, shell, signed, text};

/// A typical daemon: a session of its own, its parents gone, its streams closed.
const DAEMON: &str = "(setsid sh -c 'sleep 4321 </dev/null >/dev/null 2>&1 & ' &) ; \
    until pgrep -fx 'sleep 4321' > /dev/null; do :; done; ";
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
async fn a_command_ran_for_at_least_as_long_as_it_slept() {
    let sandbox = Sandbox::start().await;
    for _ in 0..50 {
        let result = sandbox.exec(argv(&["sleep", "0.012"])).await.unwrap();
        assert!(result.run_us >= 12_000, "{}", result.run_us);
    }
}

#[tokio::test]
async fn merged_output_comes_in_the_order_of_the_writes() {
    let sandbox = Sandbox::start().await;
    let command = "for n in 1 2 3; do echo out$n; echo err$n >&2; done";
    let result = sandbox.exec(ExecRequest { merge: true, ..shell(command) }).await.unwrap();
    assert_eq!(text(&result), "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    assert_eq!(result.stderr.unwrap().total_bytes, 0);
}

#[tokio::test]
async fn a_deadline_kills_the_whole_tree_and_keeps_what_was_written() {
    let sandbox = Sandbox::start().await;
    let other = sandbox.client.clone().start(signed(argv(&["sleep", "1234"]))).await.unwrap();
    let stubborn = format!(
        "{DAEMON} (sleep 1000 & sleep 1001) & trap '' TERM INT; echo partial; while :; do sleep 1; done"
    );
    let mut kept = String::new();
    // Retries with more time, for a machine on which the command does not get so far within its timeout.
    for timeout_ms in [500, 2000, 8000, 32_000] {
        let request = ExecRequest { timeout_ms, ..shell(&stubborn) };
        let result = sandbox.exec(request).await.unwrap();
        assert_eq!(result.end(), End::Deadline);
        // Only the other command is left.
        sandbox.until(COUNT, "1\n").await;
        kept = text(&result);
        if !kept.is_empty() {
            break;
        }
    }
    assert_eq!(kept, "partial\n");
    sandbox.cancel(&other.into_inner().exec_id).await.unwrap();
    sandbox.until(COUNT, "0\n").await;
}

#[tokio::test]
async fn a_daemon_neither_holds_the_answer_nor_becomes_a_zombie() {
    let sandbox = Sandbox::start().await;
    let answered = tokio::time::timeout(LIMIT, sandbox.exec(shell("sleep 1000 & echo done"))).await;
    assert!(answered.is_ok(), "the daemon may hold the pipes, but not the answer");
    assert_eq!(text(&answered.unwrap().unwrap()), "done\n");
    sandbox.until(COUNT, "1\n").await;
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
    sandbox.until(COUNT, "0\n").await;
    assert!(sandbox.cancel(&exec_id).await.unwrap().replayed);
    assert_eq!(sandbox.cancel("never-was").await.unwrap_err().code, Code::ExecNotFound);
}

#[tokio::test]
async fn a_kill_of_all_leaves_no_process_not_even_one_without_any_mark() {
    let sandbox = Sandbox::start().await;
    sandbox
        .sh("(env -i setsid sh -c 'while :; do echo x >> /tmp/grows; done' >/dev/null 2>&1 &); true")
        .await;
    sandbox.until("test -s /tmp/grows && echo yes; true", "yes\n").await;
    let request = shell("trap '' TERM HUP INT; sleep 1000");
    let waiting = {
        let (client, request) = (sandbox.client.clone(), request.clone());
        tokio::spawn(async move { client.clone().exec(signed(request)).await.unwrap().into_inner() })
    };
    sandbox.until(COUNT, "1\n").await;
    let all = sandbox.cancel_all().await;
    assert_eq!((all.cancelled, all.left), (1, 0));
    assert_eq!(waiting.await.unwrap().end(), End::Cancelled);
    let size = || sandbox.sh("stat -c %s /tmp/grows; set -- /proc/[0-9]*; echo $#");
    let (first, second) = (size().await, size().await);
    assert_eq!(first, second);
    let again = sandbox.cancel_all().await;
    assert_eq!((again.cancelled, again.left), (0, 0));
}

#[tokio::test]
async fn a_kill_of_all_wins_over_a_chain_of_forks_that_outruns_every_look() {
    let sandbox = Sandbox::start().await;
    let chain = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nwhile True:\n  if os.fork(): os._exit(0)\n  open('/tmp/lives', 'a').write('x')";
    sandbox.sh(&format!("env -i python3 -c \"{chain}\"")).await;
    sandbox.until("test -s /tmp/lives && echo yes; true", "yes\n").await;
    assert_eq!(sandbox.cancel_all().await.left, 0);
    let size = || sandbox.sh("stat -c %s /tmp/lives");
    let (first, second) = (size().await, size().await);
    assert_eq!(first, second);
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_is_cancelled_after_the_grace() {
    let sandbox = Sandbox::start_with(&[("ORPHAN_GRACE_MS", "1000")]).await;
    let request = argv(&["sleep", "1000"]);
    let mut waiting = Box::pin(sandbox.exec(request.clone()));
    tokio::select! {
        ended = &mut waiting => panic!("{ended:?}"),
        () = sandbox.until(COUNT, "1\n") => {}
    }
    let began = Instant::now();
    drop(waiting);
    sandbox.until(COUNT, "0\n").await;
    assert!(began.elapsed() >= Duration::from_millis(1000), "{:?}", began.elapsed());
    let result = sandbox.exec(request).await.unwrap();
    assert_eq!((result.end(), result.replayed), (End::Cancelled, true));
}

#[tokio::test]
async fn a_started_command_ends_with_its_callers_once_an_exec_has_joined_it() {
    let sandbox = Sandbox::start_with(&[("ORPHAN_GRACE_MS", "1000")]).await;
    let request = argv(&["sleep", "1000"]);
    sandbox.client.clone().start(signed(request.clone())).await.unwrap();
    let mut waiting = Box::pin(sandbox.exec(request.clone()));
    tokio::select! {
        biased;
        ended = &mut waiting => panic!("{ended:?}"),
        // Sent after the exec, over the same connection.
        () = sandbox.until(COUNT, "1\n") => {}
    }
    drop(waiting);
    sandbox.until(COUNT, "0\n").await;
    assert_eq!(sandbox.exec(request).await.unwrap().end(), End::Cancelled);
}

#[tokio::test]
async fn a_started_command_ends_without_clients_only_if_it_was_asked_to() {
    let sandbox = Sandbox::start_with(&[("ORPHAN_GRACE_MS", "1")]).await;
    let (forever, mortal) = (argv(&["sleep", "1001"]), argv(&["sleep", "1000"]));
    let mortal = ExecRequest { orphan_grace_ms: 1000, exec_id: "mortal".into(), ..mortal };
    let mut client = sandbox.client.clone();
    client.start(signed(forever)).await.unwrap();
    client.start(signed(mortal)).await.unwrap();
    let attach = AttachRequest { exec_id: "mortal".into(), ..Default::default() };
    let events = client.attach(signed(attach.clone())).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(sandbox.sh(COUNT).await, "2\n", "it has a client");
    drop(events);
    sandbox.until(COUNT, "1\n").await;
    let mut events = client.attach(signed(attach)).await.unwrap().into_inner();
    let last = events.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(last, Event::Result(result) if result.end() == End::Cancelled));
}

#[tokio::test]
async fn a_signal_goes_to_the_process_or_to_its_tree() {
    let sandbox = Sandbox::start().await;
    let request = shell("trap 'echo caught; exit 3' TERM; echo ready; sleep 1000 & wait");
    let exec_id = request.exec_id.clone();
    let mut client = sandbox.client.clone();
    client.start(signed(request.clone())).await.unwrap();
    sandbox.until(COUNT, "1\n").await;
    client
        .signal(signed(SignalRequest { exec_id: exec_id.clone(), signal: 15, ..Default::default() }))
        .await
        .unwrap();
    let result = sandbox.exec(request).await.unwrap();
    assert_eq!((result.exit_code, text(&result).as_str()), (3, "ready\ncaught\n"));
    let late =
        client.signal(signed(SignalRequest { exec_id, signal: 15, ..Default::default() })).await.unwrap_err();
    assert_eq!(problem(&late).code, Code::Conflict);

    let request = shell("sleep 1001 & sleep 1002 & wait");
    client.start(signed(request.clone())).await.unwrap();
    sandbox.until(COUNT, "3\n").await;
    let all = SignalRequest { exec_id: request.exec_id, signal: 9, tree: true, ..Default::default() };
    client.signal(signed(all)).await.unwrap();
    sandbox.until("pgrep -f 'sleep 100[12]' | wc -l", "0\n").await;
}

#[tokio::test]
async fn a_shell_abandons_one_command_with_all_that_this_has_detached_and_nothing_else() {
    let sandbox = Sandbox::start().await;
    let request = shell(
        "trap 'echo abandoned; exit 4' USR1; export ROLLBOX_COMMAND_ID=then; \
         sleep 5001 & (setsid sleep 5002 &); \
         export ROLLBOX_COMMAND_ID=now; \
         (setsid sleep 6001 &); ( (while :; do sleep 6002; done) & ); env -i sleep 6003 & sleep 6004; echo no",
    );
    let exec_id = request.exec_id.clone();
    let mut client = sandbox.client.clone();
    client.start(signed(request.clone())).await.unwrap();
    sandbox.until("pgrep -cfx 'sleep (500[12]|600[1234])'; true", "6\n").await;
    let abandon = SignalRequest { exec_id, signal: 10, command_id: "now".into(), ..Default::default() };
    client.signal(signed(abandon)).await.unwrap();
    let result = sandbox.exec(request).await.unwrap();
    assert_eq!((result.exit_code, text(&result).as_str()), (4, "abandoned\n"));
    assert_eq!(sandbox.sh("pgrep -fx 'sleep 600[1234]' | wc -l").await, "0\n");
    assert_eq!(sandbox.sh("pgrep -fx 'sleep 500[12]' | wc -l").await, "2\n");
}

#[tokio::test]
async fn who_has_shed_session_and_marker_is_killed_as_a_child() {
    let sandbox = Sandbox::start().await;
    for _ in 0..5 {
        let request = shell("env -i setsid sleep 4321 & (env -i setsid sleep 4322 & wait) & wait");
        sandbox.client.clone().start(signed(request.clone())).await.unwrap();
        sandbox.until(COUNT, "2\n").await;
        assert_eq!(sandbox.cancel(&request.exec_id).await.unwrap().end(), End::Cancelled);
        sandbox.until(COUNT, "0\n").await;
    }
}

#[tokio::test]
async fn a_fork_bomb_is_killed() {
    let sandbox = Sandbox::start().await;
    let bomb = "import os,time\nfor _ in range(300):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(999)\ntime.sleep(999)";
    let request = argv(&["python3", "-c", bomb]);
    sandbox.client.clone().start(signed(request.clone())).await.unwrap();
    sandbox.until("test $(pgrep -c python3) -gt 200 && echo many; true", "many\n").await;
    assert_eq!(sandbox.cancel(&request.exec_id).await.unwrap().end(), End::Cancelled);
    // All are dead; the last ones are reaped later, between other work.
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
        assert!(began.elapsed() < LIMIT, "the command does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sandbox.sidecar.0.kill().unwrap();
    sandbox.sidecar.0.wait().unwrap();
    let began = Instant::now();
    while alive() {
        assert!(began.elapsed() < LIMIT, "a command has outlived its sidecar");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
