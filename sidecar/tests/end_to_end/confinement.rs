//! What commands must not be able to see or do.

use crate::sandbox::{Sandbox, argv, shell, text};

#[tokio::test]
async fn no_descriptor_leaks_and_signals_are_as_new() {
    let sandbox = Sandbox::start().await;
    let listed = text(&sandbox.exec(argv(&["ls", "/proc/self/fd"])).await.unwrap());
    assert_eq!(listed, "0\n1\n2\n3\n", "3 is ls's own directory");
    let status = text(&sandbox.exec(argv(&["cat", "/proc/self/status"])).await.unwrap());
    for name in ["SigBlk", "SigIgn", "SigCgt"] {
        assert!(status.contains(&format!("{name}:\t0000000000000000\n")), "{status}");
    }
}

#[tokio::test]
async fn powers_are_the_targets_and_not_the_sidecars() {
    let sandbox = Sandbox::start().await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", target_pid(&sandbox))).unwrap();
    let wanted = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let listed = sandbox.sh("grep -E '^(Cap|NoNewPrivs)' /proc/self/status").await;
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"] {
        assert!(listed.lines().any(|line| line == wanted(name)), "{}\n{listed}", wanted(name));
    }
    assert_ne!(wanted("CapBnd"), own_bounding_set(), "the two must differ for this test");
    assert_eq!(sandbox.sh("cat /proc/self/oom_score_adj").await, "1000\n");
}

#[tokio::test]
async fn namespaces_are_the_targets_but_for_pids_and_mounts() {
    let sandbox = Sandbox::start().await;
    let pid = target_pid(&sandbox);
    for kind in ["ipc", "uts", "net"] {
        let theirs = std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_eq!(
            sandbox.sh(&format!("readlink /proc/self/ns/{kind}")).await.trim(),
            theirs.to_str().unwrap()
        );
    }
}

#[tokio::test]
async fn shared_memory_is_as_large_as_the_memory_and_all_of_the_target_see_it() {
    let sandbox = Sandbox::start_with(&[("MEMORY_LIMIT_BYTES", "16777216")]).await;
    let told = sandbox.sh("stat --file-system --format='%b %S' /dev/shm; stat --format=%a /dev/shm").await;
    assert_eq!(told, "4096 4096\n1777\n");
    let mounted = sandbox.sh("grep ' /dev/shm ' /proc/self/mountinfo | tail -n 1").await;
    assert!(mounted.contains("nosuid,nodev,noexec"), "{mounted}");
    let full = "head -c 20M /dev/zero > /dev/shm/full; stat --format=%s /dev/shm/full; rm /dev/shm/full";
    assert_eq!(sandbox.sh(full).await, "16777216\n");
    sandbox.sh("echo x > /dev/shm/seen").await;
    let seen_by_the_target = format!("/proc/{}/root/dev/shm/seen", target_pid(&sandbox));
    assert_eq!(std::fs::read_to_string(seen_by_the_target).unwrap(), "x\n");
}

#[tokio::test]
async fn without_a_limit_shared_memory_is_as_it_was() {
    let sandbox = Sandbox::start().await;
    let size = "stat --file-system --format=%b /dev/shm";
    let outside = std::process::Command::new("sh").args(["-c", size]).output().unwrap().stdout;
    assert_eq!(sandbox.sh(size).await.into_bytes(), outside);
}

#[tokio::test]
async fn only_the_init_and_the_command_itself_are_to_be_seen() {
    let sandbox = Sandbox::start().await;
    let names = sandbox.sh("for p in /proc/[0-9]*; do read -r name < $p/comm && echo $name; done").await;
    assert_eq!(names, "rollbox-spawner\nbash\n");
    // Commands cannot read the init's memory, its files, or the environment variables that it was started with
    // (credentials).
    let denied = "for f in environ mem maps fd/0 root/x cwd/x; do cat /proc/1/$f 2>/dev/null && echo OPEN $f; done; kill -9 1; echo $?";
    assert_eq!(sandbox.sh(denied).await, "0\n");
    assert_eq!(
        sandbox
            .sh("tr -d '\\0' < /proc/1/cmdline | grep -c credential; env | grep -c ROLLBOX_SIDECAR; true")
            .await,
        "0\n0\n"
    );
    let environ = std::fs::read(format!("/proc/{}/environ", sandbox.sidecar.0.id())).unwrap();
    assert!(!String::from_utf8_lossy(&environ).contains("credential"));
}

#[tokio::test]
async fn mounts_and_namespaces_are_out_of_reach() {
    let sandbox = Sandbox::start().await;
    for attempt in [
        "mount -t tmpfs none /mnt",
        "umount /proc",
        "mount -o remount,rw /proc/sys",
        "unshare --user true",
        "unshare --user --map-root-user --mount true",
        "unshare --mount true",
        "nsenter --mount=/proc/1/ns/mnt true",
        "hostname other",
        "python3 -c \"import ctypes; exit(0 if ctypes.CDLL(None, use_errno=True).syscall(56, 0x10000011, 0, 0, 0, 0) >= 0 else 1)\"",
        "python3 -c \"import ctypes; exit(0 if ctypes.CDLL(None, use_errno=True).syscall(0x40000110, 0x10000000) >= 0 else 1)\"",
    ] {
        let result = sandbox.exec(shell(attempt)).await.unwrap();
        assert_ne!(result.exit_code, 0, "{attempt} worked");
    }
}

#[tokio::test]
async fn the_kernels_knobs_are_read_only_or_masked() {
    let sandbox = Sandbox::start().await;
    for attempt in [
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo h > /proc/sysrq-trigger",
        "touch /proc/irq/default_smp_affinity && echo 1 > /proc/irq/default_smp_affinity",
        "test -s /proc/kcore",
        "test -s /proc/keys",
        "test -s /proc/timer_list",
        "ls /proc/scsi/* /proc/acpi/* /sys/firmware/* 2>/dev/null",
    ] {
        let result = sandbox.exec(shell(attempt)).await.unwrap();
        assert_ne!(result.exit_code, 0, "{attempt} worked");
    }
    assert_eq!(sandbox.sh("cat /proc/sys/kernel/ostype").await, "Linux\n");
}

fn target_pid(sandbox: &Sandbox) -> String {
    let command = format!("{}\0", sandbox.directory.path().join("target").display());
    let pids =
        std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    pids.into_iter()
        .find(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == command))
        .unwrap()
}

fn own_bounding_set() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("CapBnd")).unwrap().to_owned()
}
