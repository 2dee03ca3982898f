//! Refused operations, and their codes and reasons.

use std::os::unix::fs::symlink;

use wire::Code;
use wire::agent::{MakeDirectoryRequest, ReadFileRequest, RemoveFileRequest, WriteFileRequest};

use super::*;

#[tokio::test]
async fn every_refusal_has_its_code_and_reason() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::write(folder.join("file"), "x").unwrap();
    std::fs::create_dir(folder.join("directory")).unwrap();
    symlink("loop", folder.join("loop")).unwrap();
    let invalid = |reason: &str| (Code::InvalidArgument, reason.to_owned());
    for (name, expected) in [
        ("none", (Code::FileNotFound, "missing".to_owned())),
        ("none/file", (Code::FileNotFound, "missing".to_owned())),
        ("directory", invalid("is_directory")),
        ("file/below", invalid("not_directory")),
        ("loop", invalid("symlink_loop")),
        (&"x".repeat(256), invalid("name_too_long")),
        (&format!("{}x", "x/".repeat(2048)), invalid("name_too_long")),
        (&"x".repeat(70_000), invalid("name_too_long")),
    ] {
        let path = folder.join(name);
        assert_eq!(why(get(&sandbox, &path).await), expected, "read {name}");
        let wanted = if name == "none" { continue } else { expected };
        assert_eq!(why(put(&sandbox, &path, b"x").await), wanted, "write {name}");
    }
    let request =
        ReadFileRequest { path: b"/etc/shadow".to_vec(), user: "1000".into(), ..Default::default() };
    assert_eq!(why(read(&sandbox, request).await), (Code::PermissionDenied, "no_permission".into()));
    let request = WriteFileRequest { path: b"/etc/x".to_vec(), user: "1000".into(), ..Default::default() };
    assert_eq!(why(write(&sandbox, request, b"").await), (Code::PermissionDenied, "no_permission".into()));
    assert_eq!(why(put(&sandbox, "/proc/sys/x", b"").await).0, Code::PermissionDenied);
    let request =
        ReadFileRequest { path: b"/etc/passwd".to_vec(), user: "nobody-knows".into(), ..Default::default() };
    assert_eq!(why(read(&sandbox, request).await), invalid("user_not_found"));
    for path in [&b""[..], b"/a\0b"] {
        let refused = read(&sandbox, ReadFileRequest { path: path.to_vec(), ..Default::default() }).await;
        assert_eq!(refused.unwrap_err().details["field"], "path");
    }
    assert_eq!(names(&folder), ["directory", "file", "loop"]);
}

#[tokio::test]
async fn nothing_waits_for_what_never_comes() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    sandbox.sh(&format!("cd {} && mkfifo fifo && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'", folder.display())).await;
    symlink("/dev/zero", folder.join("zero")).unwrap();
    let not_regular = (Code::InvalidArgument, "not_regular".to_owned());
    for path in [
        folder.join("fifo"),
        folder.join("socket"),
        folder.join("zero"),
        "/dev/null".into(),
        "/dev/tty".into(),
    ] {
        assert_eq!(why(get(&sandbox, &path).await), not_regular, "read {path:?}");
        assert_eq!(why(put(&sandbox, &path, b"x").await), not_regular, "write {path:?}");
    }
    assert!(get(&sandbox, "/proc/version").await.unwrap().starts_with(b"Linux"));
    assert!(!get(&sandbox, "/proc/1/status").await.unwrap().is_empty());
    let kmsg = get(&sandbox, "/proc/kmsg").await;
    assert!(kmsg.is_err(), "a read would block until the next kernel message");
}

#[tokio::test]
async fn the_workers_own_memory_is_nobodys() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    symlink("/proc/self/mem", folder.join("mem")).unwrap();
    symlink("/proc", folder.join("proc")).unwrap();
    for path in [
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/self/maps",
        "/proc/thread-self/mem",
        "/proc/1/mem",
        "/proc/1/environ",
    ] {
        assert_eq!(why(get(&sandbox, path).await).0, Code::PermissionDenied, "{path}");
    }
    for path in ["/proc/self/mem", "/proc/self/oom_score_adj", "/proc/1/mem"] {
        assert_eq!(why(put(&sandbox, path, b"0").await).0, Code::PermissionDenied, "write {path}");
    }
    for path in ["mem", "proc/self/mem", "proc/self/task/../mem"] {
        assert_eq!(why(get(&sandbox, folder.join(path)).await).0, Code::PermissionDenied, "{path}");
    }
    let copy = wire::agent::MoveFileRequest {
        from: bytes(folder.join("mem")),
        to: bytes(folder.join("out")),
        ..Default::default()
    };
    let refused = sandbox.client.clone().copy_file(signed(copy)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::PermissionDenied);
    assert_eq!(names(&folder), ["mem", "proc"]);
}

#[tokio::test]
async fn workers_have_the_powers_of_a_command_and_no_more() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("endless");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let request = ReadFileRequest { path: bytes(&path), user: "1000".into(), ..Default::default() };
    let _stream = sandbox.client.clone().read_file(signed(request)).await.unwrap().into_inner();
    let status = sandbox.sh("cat /proc/$(pgrep rollbox-files)/status").await;
    let line = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(line("Uid:"), "1000");
    for set in ["CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(set), "0000000000000000", "{status}");
    }
    assert_eq!(line("Seccomp:"), "2");
    let bounding = sandbox.sh("grep CapBnd /proc/self/status").await;
    assert!(bounding.contains(&line("CapBnd:")), "{bounding}");
    // A process of the same user cannot look into it.
    let denied = "p=$(pgrep rollbox-files); for f in environ maps fd/0 root/etc/passwd; do cat /proc/$p/$f 2>/dev/null && echo OPEN $f; done; true";
    let request = wire::agent::ExecRequest { user: "1000".into(), ..crate::sandbox::shell(denied) };
    assert_eq!(crate::sandbox::text(&sandbox.exec(request).await.unwrap()), "");
    let open = std::fs::read_dir(format!("/proc/{}/fd", host_pid(&sandbox))).unwrap().count();
    assert_eq!(open, 4, "its three streams and the file");
}

/// The pid of the file worker, as this test sees it.
fn host_pid(sandbox: &Sandbox) -> String {
    let found =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    found
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "rollbox-files\n")
        })
        .find(|pid| {
            std::fs::read_link(format!("/proc/{pid}/fd/3"))
                .is_ok_and(|file| file.starts_with(sandbox.directory.path()))
        })
        .unwrap()
}

#[tokio::test]
async fn a_working_directory_that_is_gone_is_only_in_the_way_of_relative_paths() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir(folder.join("cwd")).unwrap();
    let cwd = folder.join("cwd").display().to_string();
    let configure = wire::agent::ConfigureRequest { cwd, ..Default::default() };
    sandbox.client.clone().configure(signed(configure)).await.unwrap();
    put(&sandbox, "relative", b"x").await.unwrap();
    assert_eq!(names(&folder.join("cwd")), ["relative"]);
    std::fs::remove_dir_all(folder.join("cwd")).unwrap();
    put(&sandbox, folder.join("absolute"), b"x").await.unwrap();
    assert_eq!(why(put(&sandbox, "relative", b"x").await), (Code::InvalidArgument, "cwd_not_found".into()));
}

#[tokio::test]
async fn the_root_stays_and_bad_modes_are_refused() {
    let sandbox = Sandbox::start().await;
    for path in ["/", "/tmp/..", "//"] {
        let request = RemoveFileRequest { path: path.into(), recursive: true, ..Default::default() };
        let refused = sandbox.client.clone().remove_file(signed(request)).await.unwrap_err();
        assert_eq!(problem(&refused).code, Code::InvalidArgument, "{path}");
    }
    let request =
        MakeDirectoryRequest { path: b"/tmp/x".to_vec(), mode: Some(0o10_000), ..Default::default() };
    let refused = sandbox.client.clone().make_directory(signed(request)).await.unwrap_err();
    assert_eq!(problem(&refused).details["field"], "mode");
}
