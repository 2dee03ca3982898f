//! The file worker that stays for the next call.

use wire::Code;
use wire::agent::ReadFileRequest;

use super::*;

/// Writes a file in one message, as gateways do with small ones.
async fn put_small(sandbox: &Sandbox, path: &Path, data: &[u8]) -> Result<FileInfo, Problem> {
    let data = Bytes::copy_from_slice(data);
    let message = WriteFileRequest { path: bytes(path), data, eof: true, ..Default::default() };
    let answer = sandbox.client.clone().write_file(signed(iter([message]))).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

async fn worker(sandbox: &Sandbox) -> String {
    sandbox.sh("pgrep rollbox-files").await
}

#[tokio::test]
async fn calls_one_after_the_other_have_one_worker_and_refusals_keep_it() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    put_small(&sandbox, &path, b"first").await.unwrap();
    let kept = worker(&sandbox).await;
    assert_eq!(kept.lines().count(), 1);
    assert_eq!(get(&sandbox, &path).await.unwrap(), b"first");
    assert_eq!(get(&sandbox, folder(&sandbox).join("none")).await.unwrap_err().code, Code::FileNotFound);
    put_small(&sandbox, &path, b"second").await.unwrap();
    put(&sandbox, &path, &vec![7; 3_000_000]).await.unwrap();
    assert_eq!(get(&sandbox, &path).await.unwrap(), vec![7; 3_000_000]);
    assert_eq!(worker(&sandbox).await, kept, "a large upload has it too");
}

#[tokio::test]
async fn a_worker_that_was_killed_stopped_or_limited_while_it_waited_hinders_no_call() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    for (round, spoil) in [
        "kill -KILL $(pgrep rollbox-files)",
        "kill -STOP $(pgrep rollbox-files)",
        "prlimit --fsize=0:0 --pid=$(pgrep rollbox-files)",
        "kill -KILL $(pgrep rollbox-files); sleep 0.2",
    ]
    .iter()
    .enumerate()
    {
        let data = vec![u8::try_from(round).unwrap(); 700_000];
        put_small(&sandbox, &path, b"before").await.unwrap();
        sandbox.sh(spoil).await;
        put_small(&sandbox, &path, &data[..4096]).await.unwrap();
        sandbox.sh(spoil).await;
        assert_eq!(get(&sandbox, &path).await.unwrap(), data[..4096], "{spoil}");
        sandbox.sh(spoil).await;
        put(&sandbox, &path, &data).await.unwrap();
        assert_eq!(get(&sandbox, &path).await.unwrap(), data, "{spoil}");
    }
}

#[tokio::test]
async fn an_upload_that_was_refused_and_a_read_that_broke_off_leave_no_worker() {
    let sandbox = Sandbox::start().await;
    let path = folder(&sandbox).join("data");
    let wrong = WriteFileRequest { path: bytes(&path), size_bytes: Some(9), ..Default::default() };
    assert_eq!(write(&sandbox, wrong, b"four").await.unwrap_err().code, Code::InvalidArgument);
    sandbox.until("pgrep -c rollbox-files; true", "0\n").await;
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let request = ReadFileRequest { path: bytes(&path), ..Default::default() };
    let mut stream = sandbox.client.clone().read_file(signed(request)).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    drop(stream);
    sandbox.until("pgrep -c rollbox-files; true", "0\n").await;
    assert_eq!(put(&sandbox, &path, b"x").await.unwrap().size_bytes, 1);
}

#[tokio::test]
async fn each_user_has_a_worker_and_relative_paths_have_one_of_their_own() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    put_small(&sandbox, &folder.join("data"), b"x").await.unwrap();
    let kept = worker(&sandbox).await;
    let as_nobody = || ReadFileRequest {
        path: bytes(folder.join("data")),
        user: "65534".to_owned(),
        ..Default::default()
    };
    read(&sandbox, as_nobody()).await.unwrap();
    let both = worker(&sandbox).await;
    assert_eq!(both.lines().count(), 2);
    read(&sandbox, as_nobody()).await.unwrap();
    put_small(&sandbox, &folder.join("data"), b"x").await.unwrap();
    assert_eq!(worker(&sandbox).await, both);
    assert!(both.starts_with(&kept));
    assert!(get(&sandbox, "nothing-here").await.is_err());
    sandbox.until("pgrep rollbox-files", &both).await;
    // A third user takes the place of the one that waited longest.
    let other = ReadFileRequest { user: "65533".to_owned(), ..as_nobody() };
    read(&sandbox, other).await.unwrap();
    sandbox.until("pgrep -c rollbox-files", "2\n").await;
    assert_ne!(worker(&sandbox).await, both);
}
