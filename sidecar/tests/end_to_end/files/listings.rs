//! Describing files and listing directories.

use std::os::unix::fs::symlink;

use wire::Code;
use wire::agent::FileKind;

use super::*;

#[tokio::test]
async fn a_link_is_described_or_looked_through() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::write(folder.join("file"), "12345").unwrap();
    symlink("file", folder.join("link")).unwrap();
    let link = stat(&sandbox, folder.join("link"), false).await.unwrap();
    assert_eq!((link.kind(), link.link_target.as_slice()), (FileKind::Symlink, &b"file"[..]));
    let file = stat(&sandbox, folder.join("link"), true).await.unwrap();
    assert_eq!((file.kind(), file.size_bytes, file.link_target.len()), (FileKind::File, 5, 0));
    assert_eq!(stat(&sandbox, "/dev/null", true).await.unwrap().kind(), FileKind::Other);
    assert!(file.modified_at_ms > 1_600_000_000_000);
}

#[tokio::test]
async fn a_directory_is_listed_flat_deep_and_within_a_limit() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir_all(folder.join("d/e")).unwrap();
    std::fs::write(folder.join("d/e/f"), "").unwrap();
    symlink("/", folder.join("d/root")).unwrap();
    let request = |recursive, limit| ListDirectoryRequest {
        path: bytes(&folder),
        recursive,
        limit,
        ..Default::default()
    };
    let paths = |found: Vec<FileInfo>| {
        let mut paths: Vec<_> = found.into_iter().map(|info| String::from_utf8(info.path).unwrap()).collect();
        paths.sort();
        paths
    };
    let at = |name: &str| folder.join(name).display().to_string();
    assert_eq!(paths(list(&sandbox, request(false, 0)).await.unwrap()), [at("d")]);
    let all = paths(list(&sandbox, request(true, 0)).await.unwrap());
    assert_eq!(all, [at("d"), at("d/e"), at("d/e/f"), at("d/root")]);
    assert_eq!(list(&sandbox, request(true, 2)).await.unwrap().len(), 2);
    let file = ListDirectoryRequest { path: bytes(folder.join("d/e/f")), ..Default::default() };
    assert_eq!(why(list(&sandbox, file).await), (Code::InvalidArgument, "not_directory".into()));
}

#[tokio::test]
async fn many_files_are_listed_and_removed_and_too_deep_trees_refused() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    sandbox
        .sh(&format!("cd {} && mkdir many && cd many && seq 1 20000 | xargs touch", folder.display()))
        .await;
    let request =
        ListDirectoryRequest { path: bytes(folder.join("many")), recursive: true, ..Default::default() };
    assert_eq!(list(&sandbox, request).await.unwrap().len(), 20_000);
    let deep = "import os\nfor _ in range(1000):\n  os.mkdir('d')\n  os.chdir('d')";
    sandbox.sh(&format!("cd {} && python3 -c \"{deep}\"", folder.display())).await;
    let request =
        ListDirectoryRequest { path: bytes(folder.join("d")), recursive: true, ..Default::default() };
    assert_eq!(why(list(&sandbox, request).await), (Code::InvalidArgument, "too_deep".into()));
}
