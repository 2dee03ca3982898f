//! Content for names that have a file already: whose it stays, who may, and where no other file can take the name.

use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use wire::Code;
use wire::agent::{MoveFileRequest, WriteFileRequest};

use super::*;

fn as_user(path: impl AsRef<Path>, user: &str) -> WriteFileRequest {
    WriteFileRequest { path: bytes(path), user: user.into(), ..Default::default() }
}

/// A file with this owner (user and group) and mode.
fn file(path: impl AsRef<Path>, owner: u32, mode: u32) {
    let path = path.as_ref();
    std::fs::write(path, "old content").unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Owner, group, mode and content.
fn found(path: impl AsRef<Path>) -> (u32, u32, u32, String) {
    let stat = std::fs::metadata(path.as_ref()).unwrap();
    (stat.uid(), stat.gid(), stat.mode() & 0o7777, std::fs::read_to_string(path).unwrap())
}

fn tar_of(name: &str, mode: u32, data: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(mode);
    header.set_mtime(1_000_000_000);
    tar.append_data(&mut header, name, data).unwrap();
    tar.into_inner().unwrap()
}

#[tokio::test]
async fn a_file_stays_its_owners_with_its_mode_and_attributes() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let path = folder.join("file");
    let python =
        |lines: &str| format!("python3 -c 'import os, struct\npath = \"{}\"\n{lines}'", path.display());
    // An access control list in the kernel's form: tag, permissions and id of each entry.
    let set = python(
        "entries = [(1, 6, -1), (2, 6, 1234), (4, 4, -1), (16, 6, -1), (32, 0, -1)]\n\
         os.setxattr(path, \"system.posix_acl_access\", struct.pack(\"<I\", 2) + b\"\".join(struct.pack(\"<HHi\", *entry) for entry in entries))\n\
         os.setxattr(path, \"user.note\", b\"kept\")",
    );
    let shown = python("print(sorted((name, os.getxattr(path, name)) for name in os.listxattr(path)))");
    for way in ["write", "unpack", "copy"] {
        let _ = std::fs::remove_file(&path);
        file(&path, 1000, 0o640);
        sandbox.sh(&set).await;
        let before = sandbox.sh(&shown).await;
        assert!(before.contains("kept") && before.contains("posix_acl_access"), "{before}");
        match way {
            "write" => drop(put(&sandbox, &path, b"new").await.unwrap()),
            "unpack" => drop(unpack(&sandbox, &folder, &tar_of("file", 0o755, b"new")).await.unwrap()),
            _ => {
                file(folder.join("other"), 0, 0o755);
                std::fs::write(folder.join("other"), "new").unwrap();
                let copy = MoveFileRequest {
                    from: bytes(folder.join("other")),
                    to: bytes(&path),
                    replace: true,
                    ..Default::default()
                };
                sandbox.client.clone().copy_file(signed(copy)).await.unwrap();
                std::fs::remove_file(folder.join("other")).unwrap();
            }
        }
        let (uid, gid, mode, content) = found(&path);
        // With a list the bits of the group are its mask.
        assert_eq!((uid, gid, mode, content.as_str()), (1000, 1000, 0o660, "new"), "{way}");
        assert_eq!(sandbox.sh(&shown).await, before, "{way}");
        assert_eq!(names(&folder), ["file"]);
    }
}

#[tokio::test]
async fn what_a_user_may_write_with_a_shell_is_written_and_nothing_else() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let closed = folder.join("closed");
    std::fs::create_dir(&closed).unwrap();
    file(closed.join("open"), 0, 0o666);
    write(&sandbox, as_user(closed.join("open"), "1000"), b"new").await.unwrap();
    assert_eq!(found(closed.join("open")), (0, 0, 0o666, "new".into()));
    unpack_as(&sandbox, &closed, &tar_of("open", 0o600, b"newer and longer"), "1000").await.unwrap();
    assert_eq!(found(closed.join("open")), (0, 0, 0o666, "newer and longer".into()));
    assert_eq!(names(&closed), ["open"]);
    let denied = (Code::PermissionDenied, "no_permission".to_owned());
    assert_eq!(why(write(&sandbox, as_user(closed.join("none"), "1000"), b"x").await), denied);
    file(folder.join("roots"), 0, 0o644);
    assert_eq!(why(write(&sandbox, as_user(folder.join("roots"), "1000"), b"new").await), denied);
    assert_eq!(why(unpack_as(&sandbox, &folder, &tar_of("roots", 0o644, b"new"), "1000").await), denied);
    let copy = MoveFileRequest {
        from: b"/etc/passwd".to_vec(),
        to: bytes(folder.join("roots")),
        user: "1000".into(),
        replace: true,
        ..Default::default()
    };
    let refused = sandbox.client.clone().copy_file(signed(copy)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::PermissionDenied);
    assert_eq!(found(folder.join("roots")), (0, 0, 0o644, "old content".into()));
    // A file that its user may write, in a folder where that user could replace it by one of another owner.
    file(folder.join("shared"), 0, 0o666);
    let asked = WriteFileRequest { mode: Some(0o600), ..as_user(folder.join("shared"), "1000") };
    assert_eq!(why(write(&sandbox, asked, b"x").await), denied);
    write(&sandbox, as_user(folder.join("shared"), "1000"), b"new").await.unwrap();
    assert_eq!(found(folder.join("shared")), (0, 0, 0o666, "new".into()));
    // A read-only file is its owner's, who may write to it with a mode, as a second try of such a write does.
    file(folder.join("own"), 1000, 0o444);
    assert_eq!(why(write(&sandbox, as_user(folder.join("own"), "1000"), b"x").await), denied);
    assert_eq!(found(folder.join("own")), (1000, 1000, 0o444, "old content".into()));
    for content in [b"new", b"two"] {
        let asked = WriteFileRequest { mode: Some(0o444), ..as_user(folder.join("own"), "1000") };
        write(&sandbox, asked, content).await.unwrap();
    }
    assert_eq!(found(folder.join("own")), (1000, 1000, 0o444, "two".into()));
    unpack_as(&sandbox, &folder, &tar_of("own", 0o444, b"new"), "1000").await.unwrap();
    assert_eq!(found(folder.join("own")), (1000, 1000, 0o444, "new".into()));
}

#[tokio::test]
async fn a_mount_point_is_written_into_once_all_is_there() {
    // Mounted before the sandbox has its own mount namespace.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    file(folder.join("behind"), 0, 0o644);
    file(folder.join("hosts"), 0, 0o644);
    let (behind, hosts) = (folder.join("behind"), folder.join("hosts"));
    nix::mount::mount(Some(&behind), &hosts, None::<&str>, nix::mount::MsFlags::MS_BIND, None::<&str>)
        .unwrap();
    let sandbox = Sandbox::start().await;
    let wrong = WriteFileRequest { size_bytes: Some(9), ..as_user(&hosts, "") };
    let refused = why(write(&sandbox, wrong, b"new").await);
    let kept = found(&behind).3;
    let written = put(&sandbox, &hosts, b"new").await;
    let after = found(&behind).3;
    let unpacked = unpack(&sandbox, folder, &tar_of("hosts", 0o600, b"again")).await;
    let last = found(&behind);
    nix::mount::umount(&hosts).unwrap();
    assert_eq!((refused.1.as_str(), kept.as_str()), ("size_mismatch", "old content"));
    assert_eq!((written.unwrap().size_bytes, after.as_str()), (3, "new"));
    assert_eq!((unpacked.unwrap().count, last), (1, (0, 0, 0o644, "again".into())));
    assert_eq!(names(folder), ["behind", "hosts"]);
}

#[tokio::test]
async fn other_names_and_open_readers_see_it_where_it_is_asked_for() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let (one, two) = (folder.join("one"), folder.join("two"));
    file(&one, 1000, 0o640);
    std::fs::hard_link(&one, &two).unwrap();
    let mut held = std::fs::File::open(&one).unwrap();
    let mut seen = || {
        let mut text = String::new();
        held.rewind().unwrap();
        held.read_to_string(&mut text).unwrap();
        text
    };
    write(&sandbox, WriteFileRequest { in_place: true, ..as_user(&one, "") }, b"in place").await.unwrap();
    assert_eq!((found(&two), seen().as_str()), ((1000, 1000, 0o640, "in place".into()), "in place"));
    put(&sandbox, &one, b"replaced").await.unwrap();
    assert_eq!((found(&one).3.as_str(), found(&two).3.as_str()), ("replaced", "in place"));
    assert_eq!(seen(), "in place");
}

#[tokio::test]
async fn modes_and_times_are_those_that_were_asked_for() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let asked = |name: &str, ms| WriteFileRequest {
        mode: Some(0o755),
        keep_mode: true,
        modified_at_ms: Some(ms),
        ..as_user(folder.join(name), "")
    };
    assert_eq!(write(&sandbox, asked("new", 1_000_000_000_250), b"x").await.unwrap().mode, 0o755);
    file(folder.join("old"), 0, 0o640);
    let info = write(&sandbox, asked("old", -1500), b"x").await.unwrap();
    assert_eq!((info.mode, info.modified_at_ms), (0o640, -1500));
    assert_eq!(std::fs::metadata(folder.join("new")).unwrap().mtime_nsec(), 250_000_000);
    // A set-user-ID program that root writes stays one.
    file(folder.join("program"), 1000, 0o4755);
    put(&sandbox, folder.join("program"), b"x").await.unwrap();
    assert_eq!(found(folder.join("program")).2, 0o4755);
    write(&sandbox, as_user(folder.join("program"), "1000"), b"y").await.unwrap();
    assert_eq!(found(folder.join("program")).2, 0o755);
}

#[tokio::test]
async fn directories_that_are_there_keep_what_they_have() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    // Without the end mark.
    let mut tar = tar::Builder::new(tar_of("first/file", 0o644, b"x")[..1024].to_vec());
    for name in ["first/", "there/"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o711);
        header.set_mtime(1_000_000_000);
        tar.append_data(&mut header, name, &b""[..]).unwrap();
    }
    std::fs::create_dir(folder.join("there")).unwrap();
    chown(folder.join("there"), Some(1000), Some(1000)).unwrap();
    std::fs::set_permissions(folder.join("there"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    unpack(&sandbox, &folder, &tar.into_inner().unwrap()).await.unwrap();
    let stat = |name: &str| {
        let stat = std::fs::metadata(folder.join(name)).unwrap();
        (stat.uid(), stat.mode() & 0o7777)
    };
    assert_eq!(stat("there"), (1000, 0o1777));
    assert_eq!(stat("first"), (0, 0o711), "made for the file in it, before its own entry came");
}
