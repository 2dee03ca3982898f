//! Commands and callers that try to break the sandbox's init: it has to serve the next command.

use std::time::Duration;

use wire::Code;
use wire::agent::{ConfigureRequest, End, ExecRequest, ListRequest};

use crate::sandbox::{LIMIT, Sandbox, argv, env, grows_to, problem, shell, signed, text, within};

async fn serves(sandbox: &Sandbox) {
    let alive = tokio::time::timeout(LIMIT, sandbox.exec(argv(&["echo", "alive"]))).await;
    assert!(alive.is_ok(), "the init hangs");
    assert_eq!(text(&alive.unwrap().unwrap()), "alive\n");
}

#[tokio::test]
async fn what_is_too_long_for_an_order_is_refused_and_ends_nobody() {
    let sandbox = Sandbox::start().await;
    let long = "x".repeat(7 << 20);
    let many: Vec<&str> = std::iter::once("true").chain(std::iter::repeat_n("", 900_000)).collect();
    let reason = |problem: &wire::Problem| (problem.code, problem.details.get("reason").cloned());
    let too_large = (Code::InvalidArgument, Some("arguments_too_large".to_owned()));
    for request in [
        ExecRequest { cwd: long.clone(), ..argv(&["true"]) },
        ExecRequest { user: long.clone(), ..argv(&["true"]) },
        argv(&many),
    ] {
        assert_eq!(reason(&sandbox.exec(request).await.unwrap_err()), too_large);
        serves(&sandbox).await;
    }
    let bound = ConfigureRequest { cwd: long, ..Default::default() };
    let status = sandbox.client.clone().configure(signed(bound)).await.unwrap_err();
    assert_eq!(reason(&problem(&status)), too_large);
    serves(&sandbox).await;
}

#[tokio::test]
async fn a_refusal_that_repeats_a_long_value_is_cut() {
    let sandbox = Sandbox::start().await;
    let control = "\u{1}".repeat(900_000);
    for (request, reason) in [
        (argv(&[&format!("/{control}")]), "command_not_found"),
        (argv(&[&control]), "command_not_found"),
        (ExecRequest { user: control.clone(), ..argv(&["true"]) }, "user_not_found"),
    ] {
        let problem = sandbox.exec(request).await.unwrap_err();
        assert_eq!(problem.details["reason"], reason);
        serves(&sandbox).await;
    }
}

#[tokio::test]
async fn a_path_of_countless_directories_costs_no_memory() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest { env: env(&[("PATH", &":".repeat(100_000))]), ..argv(&[&"x".repeat(250)]) };
    assert_eq!(sandbox.exec(request).await.unwrap_err().details["reason"], "command_not_found");
    serves(&sandbox).await;
    let peak = sandbox.sh("awk '/VmHWM/ {print $2}' /proc/1/status").await;
    assert!(peak.trim().parse::<u64>().unwrap() < 16 << 10, "{peak} KiB");
}

#[tokio::test]
async fn a_process_whose_first_thread_is_gone_is_killed_all_the_same() {
    let sandbox = Sandbox::start().await;
    let program = "import ctypes, threading, time\n\
        threading.Thread(target=time.sleep, args=(999,)).start()\n\
        ctypes.CDLL(None).syscall(60, 0)";
    let request = argv(&["python3", "-c", program]);
    sandbox.client.clone().start(signed(request.clone())).await.unwrap();
    sandbox.until("cat /proc/[0-9]*/stat 2> /dev/null | grep -c '(python3) Z'; true", "1\n").await;
    assert_eq!(sandbox.cancel(&request.exec_id).await.unwrap().end(), End::Cancelled);
    sandbox.until("pgrep -c python3; true", "0\n").await;
}

#[tokio::test]
async fn commands_that_are_stopped_before_they_run_do_not_stop_the_init() {
    let sandbox = Sandbox::start().await;
    let program = "import os, signal, sys\nopen(sys.argv[1], 'w').close()\n\
        while True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except OSError: pass";
    for begun in ["first", "second"] {
        let stopper = argv(&["python3", "-c", program, begun]);
        let (exec_id, mut calls) = (stopper.exec_id.clone(), tokio::task::JoinSet::new());
        sandbox.client.clone().start(signed(stopper)).await.unwrap();
        // Checked without a command, since that would be stopped.
        let has_begun = async {
            while !sandbox.directory.path().join(begun).exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(LIMIT, has_begun).await.is_ok(), "the command does not start");
        for _ in 0..100 {
            let mut client = sandbox.client.clone();
            let request = ExecRequest { timeout_ms: 300, ..argv(&["true"]) };
            calls.spawn(async move { client.exec(signed(request)).await });
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let stopped = tokio::time::timeout(LIMIT, sandbox.cancel(&exec_id)).await;
        assert!(stopped.is_ok(), "the init hangs");
        assert_eq!(stopped.unwrap().unwrap().end(), End::Cancelled);
        drop(calls);
        serves(&sandbox).await;
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_opened_now_does_not_stop_the_init() {
    let sandbox = Sandbox::start().await;
    let lease = "import fcntl, os, signal, time\n\
        signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
        fd = os.open('leased', os.O_RDWR | os.O_CREAT, 0o755)\n\
        fcntl.fcntl(fd, 1024, fcntl.F_WRLCK)\n\
        open('ready', 'w').close()\n\
        time.sleep(999)";
    sandbox.client.clone().start(signed(argv(&["python3", "-c", lease]))).await.unwrap();
    sandbox.until("ls ready 2>/dev/null; true", "ready\n").await;
    let mut client = sandbox.client.clone();
    let hanging = tokio::spawn(async move { client.exec(signed(argv(&["./leased"]))).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    serves(&sandbox).await;
    let refused = hanging.await.unwrap().unwrap_err();
    assert_eq!(problem(&refused).code, Code::InvalidArgument);
}

#[tokio::test]
async fn the_inits_own_limits_are_out_of_reach() {
    let sandbox = Sandbox::start().await;
    for limit in ["--nofile=3", "--cpu=1", "--as=4096"] {
        let result = sandbox.exec(shell(&format!("prlimit --pid 1 {limit}"))).await.unwrap();
        assert_ne!(result.exit_code, 0, "{limit} worked");
    }
    serves(&sandbox).await;
}

#[tokio::test]
async fn floods_of_output_leave_time_for_everybody_else() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest {
        timeout_ms: 1000,
        max_output_bytes: 1 << 20,
        ..shell("yes & yes & yes & yes >&2 & yes")
    };
    let mut client = sandbox.client.clone();
    let flood = tokio::spawn(async move { client.exec(signed(request)).await.unwrap().into_inner() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    serves(&sandbox).await;
    let flooded = tokio::time::timeout(LIMIT, flood).await;
    assert!(flooded.is_ok(), "the flood is not stopped");
    assert_eq!(flooded.unwrap().unwrap().end(), End::Deadline);
}

#[tokio::test]
async fn a_fork_storm_is_over_within_the_time_of_a_kill() {
    let sandbox = Sandbox::start().await;
    let storm = "import os\nos.setsid() if os.fork() == 0 else None\nwhile True:\n  try:\n    if os.fork(): os._exit(0)\n  except OSError: pass";
    within(Duration::from_secs(8), async || {
        let request = ExecRequest { timeout_ms: 1000, ..shell(&format!("python3 -c '{storm}' & sleep 100")) };
        assert_eq!(sandbox.exec(request).await.unwrap().end(), End::Deadline);
    })
    .await;
    serves(&sandbox).await;
}

#[tokio::test]
async fn what_many_commands_write_at_a_time_is_kept_within_the_budget() {
    const COMMANDS: u64 = 32;
    const WRITTEN: u64 = 6_000_000;
    let sandbox = Sandbox::start().await;
    let mut client = sandbox.client.clone();
    for _ in 0..COMMANDS {
        let request = shell(&format!("head -c {WRITTEN} /dev/zero; sleep 1000"));
        client.start(signed(ExecRequest { max_output_bytes: 16 << 20, ..request })).await.unwrap();
    }
    let written = async || {
        let execs = client.clone().list(signed(ListRequest {})).await.unwrap().into_inner().execs;
        execs.iter().map(|exec| exec.stdout_bytes).sum()
    };
    grows_to(COMMANDS * WRITTEN, written).await;
    assert!(sandbox.peak_kib() < 96 << 10, "{} KiB", sandbox.peak_kib());
}
