//! Uploads and downloads of file contents.

use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use tokio_stream::wrappers::ReceiverStream;
use wire::Code;
use wire::agent::{FileKind, ReadFileRequest, WriteFileRequest};

use super::*;
use crate::sandbox::LIMIT;

#[tokio::test]
async fn bytes_survive_both_ways_with_size_and_digest() {
    // The slow computation comes first: a client that computes does not answer HTTP/2 pings.
    let data: Vec<u8> = (0..=255).cycle().take(3_000_001).collect();
    let sha256 = Sha256::digest(&data).to_vec();
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    let first = WriteFileRequest {
        path: bytes(&path),
        size_bytes: Some(data.len() as u64),
        sha256: sha256.clone(),
        ..Default::default()
    };
    let info = write(&sandbox, first, &data).await.unwrap();
    assert_eq!((info.size_bytes, info.kind(), info.path), (3_000_001, FileKind::File, bytes(&path)));
    assert_eq!(info.sha256, sha256);
    let (chunks, read) =
        read(&sandbox, ReadFileRequest { path: bytes(&path), ..Default::default() }).await.unwrap();
    assert!(read == data);
    assert_eq!(chunks[0].info.as_ref().unwrap().size_bytes, 3_000_001);
    assert_eq!(chunks.last().unwrap().sha256, sha256);
    assert!(put(&sandbox, &path, b"").await.is_ok() && get(&sandbox, &path).await.unwrap().is_empty());
}

#[tokio::test]
async fn ranges_are_cut_at_the_files_end() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    std::fs::write(&path, "0123456789").unwrap();
    let range = async |offset_bytes, length_bytes| {
        let request =
            ReadFileRequest { path: bytes(&path), offset_bytes, length_bytes, ..Default::default() };
        String::from_utf8(super::read(&sandbox, request).await.unwrap().1).unwrap()
    };
    assert_eq!(range(3, 4).await, "3456");
    assert_eq!(range(8, 0).await, "89");
    assert_eq!(range(8, 100).await, "89");
    assert_eq!(range(u64::MAX, 1).await, "");
}

#[tokio::test]
async fn modes_owners_and_masks_are_as_asked_or_as_a_commands() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().mode() & 0o7777;
    put(&sandbox, folder.join("plain"), b"x").await.unwrap();
    assert_eq!(mode("plain"), 0o644);
    std::fs::set_permissions(folder.join("plain"), std::fs::Permissions::from_mode(0o750)).unwrap();
    put(&sandbox, folder.join("plain"), b"y").await.unwrap();
    assert_eq!(mode("plain"), 0o750, "the old file's mode stays");
    let request = |name: &str| WriteFileRequest { path: bytes(folder.join(name)), ..Default::default() };
    write(&sandbox, WriteFileRequest { mode: Some(0o4711), ..request("set") }, b"x").await.unwrap();
    assert_eq!(mode("set"), 0o4711);
    let info = write(&sandbox, WriteFileRequest { owner: "1234:55".into(), ..request("given") }, b"x")
        .await
        .unwrap();
    assert_eq!((info.uid, info.gid), (1234, 55));
    let info =
        write(&sandbox, WriteFileRequest { user: "1000:1000".into(), ..request("own") }, b"x").await.unwrap();
    assert_eq!((info.uid, info.gid), (1000, 1000));
    let theft = WriteFileRequest { user: "1000".into(), owner: "0".into(), ..request("stolen") };
    assert_eq!(why(write(&sandbox, theft, b"x").await), (Code::PermissionDenied, "no_permission".into()));
    let unknown = WriteFileRequest { owner: "nobody-knows".into(), ..request("x") };
    assert_eq!(why(write(&sandbox, unknown, b"").await), (Code::InvalidArgument, "user_not_found".into()));
    assert_eq!(names(&folder), ["given", "own", "plain", "set"]);
}

#[tokio::test]
async fn links_are_written_through_and_missing_directories_made() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::write(folder.join("real"), "old").unwrap();
    symlink("real", folder.join("link")).unwrap();
    put(&sandbox, folder.join("link"), b"new").await.unwrap();
    assert!(folder.join("link").is_symlink());
    assert_eq!(std::fs::read(folder.join("real")).unwrap(), b"new");
    let deep = folder.join("a/b/c/file");
    assert_eq!(why(put(&sandbox, &deep, b"x").await).0, Code::FileNotFound);
    let first = WriteFileRequest { path: bytes(&deep), parents: true, ..Default::default() };
    write(&sandbox, first, b"x").await.unwrap();
    assert_eq!(get(&sandbox, &deep).await.unwrap(), b"x");
    let relative = PathBuf::from("files/a/b/c/file");
    assert_eq!(get(&sandbox, &relative).await.unwrap(), b"x", "relative to the working directory");
}

#[tokio::test]
async fn names_are_bytes() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join(std::ffi::OsString::from_vec(b"\xff\xfe \n\x01".to_vec()));
    assert_eq!(put(&sandbox, &path, b"x").await.unwrap().path, bytes(&path));
    assert_eq!(get(&sandbox, &path).await.unwrap(), b"x");
    let tar = pack(&sandbox, folder(&sandbox)).await.unwrap();
    unpack(&sandbox, folder(&sandbox).join("copy"), &tar).await.unwrap();
    let copy = folder(&sandbox).join("copy").join(path.file_name().unwrap());
    assert_eq!(std::fs::read(copy).unwrap(), b"x");
}

#[tokio::test]
async fn what_is_not_as_announced_leaves_the_old_file_and_nothing_else() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let path = folder.join("data");
    std::fs::write(&path, "old").unwrap();
    let request = || WriteFileRequest { path: bytes(&path), ..Default::default() };
    let digest = WriteFileRequest { sha256: vec![7; 32], ..request() };
    assert_eq!(why(write(&sandbox, digest, b"new").await), (Code::InvalidArgument, "digest_mismatch".into()));
    let size = WriteFileRequest { size_bytes: Some(4), ..request() };
    assert_eq!(why(write(&sandbox, size, b"new").await), (Code::InvalidArgument, "size_mismatch".into()));
    let short = WriteFileRequest { sha256: vec![7; 31], ..request() };
    assert_eq!(write(&sandbox, short, b"new").await.unwrap_err().details["field"], "sha256");
    assert_eq!((names(&folder), std::fs::read(&path).unwrap()), (vec!["data".into()], b"old".to_vec()));
}

/// A small file system, unmounted on drop.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), folder.path(), Some("tmpfs"), flags, Some(options)).unwrap();
        Self(folder)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = nix::mount::umount(self.0.path());
    }
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let disk = Disk::new("size=4m,mode=777");
    let sandbox = Sandbox::start().await;
    let path = disk.0.path().join("data");
    put(&sandbox, &path, b"old").await.unwrap();
    let large = vec![7; 16 << 20];
    assert_eq!(why(put(&sandbox, &path, &large).await), (Code::NoSpace, "disk_full".into()));
    assert_eq!(get(&sandbox, &path).await.unwrap(), b"old");
    assert_eq!(sandbox.sh(&format!("ls -A {}", disk.0.path().display())).await, "data\n");
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(large.len() as u64);
    tar.append_data(&mut header, "large", large.as_slice()).unwrap();
    let tar = tar.into_inner().unwrap();
    assert_eq!(why(unpack(&sandbox, disk.0.path(), &tar).await), (Code::NoSpace, "disk_full".into()));
    assert_eq!(sandbox.sh(&format!("ls -A {}", disk.0.path().display())).await, "data\n");
    // The space on the disk is free again.
    put(&sandbox, &path, &large[..2 << 20]).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_in_the_middle_leaves_the_old_file_and_nothing_else() {
    gone_in_the_middle(false).await;
}

#[tokio::test]
async fn data_without_a_last_message_leave_the_old_file_and_nothing_else() {
    gone_in_the_middle(true).await;
}

async fn gone_in_the_middle(keeps_the_call: bool) {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let path = folder.join("data");
    std::fs::write(&path, "old").unwrap();
    let (messages, queue) = tokio::sync::mpsc::channel(4);
    let mut client = sandbox.client.clone();
    let call = tokio::spawn(async move { client.write_file(signed(ReceiverStream::new(queue))).await });
    messages.send(WriteFileRequest { path: bytes(&path), ..Default::default() }).await.unwrap();
    for _ in 0..8 {
        let data = vec![1; 100_000].into();
        messages.send(WriteFileRequest { data, ..Default::default() }).await.unwrap();
    }
    wait_until(|| names(&folder).len() == 2).await;
    // To the server, a cancelled call and messages that end without the last one look alike.
    if keeps_the_call {
        drop(messages);
    } else {
        call.abort();
    }
    wait_until(|| names(&folder) == ["data"]).await;
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    sandbox.until("pgrep -c rollbox-files; true", "0\n").await;
}

#[tokio::test]
async fn a_reader_that_goes_or_does_not_read_holds_up_nobody() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("endless");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let mut client = sandbox.client.clone();
        let request = ReadFileRequest { path: bytes(&path), ..Default::default() };
        calls.spawn(async move { client.read_file(signed(request)).await.unwrap().into_inner() });
    }
    let mut streams = Vec::new();
    while streams.len() < 32 {
        streams.push(calls.join_next().await.unwrap().unwrap());
    }
    assert_eq!(sandbox.sh("pgrep -c rollbox-files").await, "32\n", "the other calls wait in the queue");
    assert_eq!(sandbox.sh("echo on").await, "on\n");
    drop(calls);
    drop(streams);
    sandbox.until("pgrep -c rollbox-files; true", "0\n").await;
    std::fs::write(&path, "x").unwrap();
    assert_eq!(get(&sandbox, &path).await.unwrap(), b"x");
}

pub(super) async fn wait_until(reached: impl Fn() -> bool) {
    let reached = async {
        while !reached() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, reached).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_is_killed_is_told() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("endless");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let request = ReadFileRequest { path: bytes(&path), ..Default::default() };
    let mut stream = sandbox.client.clone().read_file(signed(request)).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    sandbox.sh("pkill -TERM rollbox-files; sleep 0.1; pgrep -c rollbox-files").await;
    sandbox.sh("pkill -KILL rollbox-files").await;
    let end = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a stream that broke off looks whole"),
            Err(status) => break problem(&status),
        }
    };
    assert_eq!((end.code, end.details["reason"].as_str()), (Code::Conflict, "worker_killed"));
}

#[tokio::test]
async fn memory_stays_flat_while_much_goes_up_and_down() {
    // Twice the memory that the whole sidecar may take.
    const PIECES: usize = 384;
    const PIECE_BYTES: usize = 256 << 10;
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("large");
    let piece = Bytes::from(vec![5; PIECE_BYTES]);
    let first = WriteFileRequest { path: bytes(&path), ..Default::default() };
    let rest = (0..PIECES).map(move |_| WriteFileRequest { data: piece.clone(), ..Default::default() });
    let last = WriteFileRequest { eof: true, ..Default::default() };
    let messages = iter(std::iter::once(first).chain(rest).chain([last]));
    let info = sandbox.client.clone().write_file(signed(messages)).await.unwrap().into_inner();
    assert_eq!(info.size_bytes, (PIECES * PIECE_BYTES) as u64);
    let request = ReadFileRequest { path: bytes(&path), ..Default::default() };
    let mut stream = sandbox.client.clone().read_file(signed(request)).await.unwrap().into_inner();
    let mut total = 0;
    while let Some(chunk) = stream.message().await.unwrap() {
        total += chunk.data.len();
    }
    assert_eq!(total, PIECES * PIECE_BYTES);
    assert!(sandbox.peak_kib() < 48 << 10, "{} KiB", sandbox.peak_kib());
}
