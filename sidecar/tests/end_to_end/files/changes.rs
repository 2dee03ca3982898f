//! Making, moving, copying and removing files.

use std::os::unix::fs::{MetadataExt, symlink};

use wire::Code;
use wire::agent::{FileKind, MakeDirectoryRequest, MoveFileRequest, RemoveFileRequest};

use super::*;

async fn make(sandbox: &Sandbox, request: MakeDirectoryRequest) -> Result<FileInfo, Problem> {
    let answer = sandbox.client.clone().make_directory(signed(request)).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

async fn remove(sandbox: &Sandbox, path: &Path, recursive: bool, missing_ok: bool) -> Result<u64, Problem> {
    let request = RemoveFileRequest { path: bytes(path), recursive, missing_ok, ..Default::default() };
    let answer = sandbox.client.clone().remove_file(signed(request)).await;
    answer.map(|answer| answer.into_inner().count).map_err(|status| problem(&status))
}

fn between(from: &Path, to: &Path, replace: bool) -> MoveFileRequest {
    MoveFileRequest { from: bytes(from), to: bytes(to), replace, ..Default::default() }
}

async fn rename(sandbox: &Sandbox, request: MoveFileRequest) -> Result<FileInfo, Problem> {
    let answer = sandbox.client.clone().move_file(signed(request)).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

async fn copy(sandbox: &Sandbox, request: MoveFileRequest) -> Result<FileInfo, Problem> {
    let answer = sandbox.client.clone().copy_file(signed(request)).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

#[tokio::test]
async fn directories_are_made_with_those_above_and_a_mode() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let request = |name: &str, parents| MakeDirectoryRequest {
        path: bytes(folder.join(name)),
        parents,
        ..Default::default()
    };
    assert_eq!(make(&sandbox, request("a", false)).await.unwrap().mode, 0o755);
    assert_eq!(why(make(&sandbox, request("a", false)).await), (Code::Conflict, "exists".into()));
    assert!(make(&sandbox, request("a", true)).await.is_ok());
    assert_eq!(why(make(&sandbox, request("b/c", false)).await).0, Code::FileNotFound);
    let made =
        make(&sandbox, MakeDirectoryRequest { mode: Some(0o1777), ..request("b/c/", true) }).await.unwrap();
    assert_eq!((made.mode, made.kind()), (0o1777, FileKind::Directory));
    std::fs::write(folder.join("file"), "").unwrap();
    assert_eq!(why(make(&sandbox, request("file", true)).await), (Code::Conflict, "exists".into()));
    assert_eq!(
        why(make(&sandbox, request("file/x", true)).await),
        (Code::InvalidArgument, "not_directory".into())
    );
}

#[tokio::test]
async fn things_move_and_replace_only_when_told() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::write(folder.join("a"), "a").unwrap();
    std::fs::write(folder.join("b"), "b").unwrap();
    let at = |name: &str| folder.join(name);
    assert_eq!(
        why(rename(&sandbox, between(&at("a"), &at("b"), false)).await),
        (Code::Conflict, "exists".into())
    );
    assert_eq!(rename(&sandbox, between(&at("a"), &at("b"), true)).await.unwrap().size_bytes, 1);
    assert_eq!((names(&folder), std::fs::read(at("b")).unwrap()), (vec!["b".into()], b"a".to_vec()));
    assert_eq!(why(rename(&sandbox, between(&at("a"), &at("c"), true)).await).0, Code::FileNotFound);
    let deep = MoveFileRequest { parents: true, ..between(&at("b"), &at("x/y/b"), false) };
    rename(&sandbox, deep).await.unwrap();
    assert_eq!(names(&at("x/y")), ["b"]);
    let inside = rename(&sandbox, between(&at("x"), &at("x/y/z"), false)).await;
    assert_eq!(why(inside), (Code::InvalidArgument, "into_itself".into()));
}

#[tokio::test]
async fn a_refused_move_names_the_side_that_refuses() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let at = |name: &str| folder.join(name);
    let made = "mkdir -p open closed open/locked sticky && touch open/f closed/f sticky/f && chown 1000 open open/f closed/f";
    sandbox
        .sh(&format!(
            "chmod 755 {0} && cd {0} && {made} && chmod 1777 sticky && mkdir open/own && chown 1000 open/own",
            folder.display()
        ))
        .await;
    for (from, to, refuses) in [
        ("closed/f", "open/g", "closed/f"),
        ("closed/f", "closed/g", "closed/f"),
        ("open/f", "closed/g", "closed/g"),
        ("sticky/f", "sticky/g", "sticky/f"),
        ("open/f", "sticky/f", "sticky/f"),
        ("open/locked", "open/own/locked", "open/locked"),
    ] {
        let request = MoveFileRequest { user: "1000".into(), ..between(&at(from), &at(to), true) };
        let refused = rename(&sandbox, request).await.unwrap_err();
        let told = (refused.code, refused.details["path"].clone());
        assert_eq!(told, (Code::PermissionDenied, at(refuses).display().to_string()), "{from} to {to}");
    }
}

#[tokio::test]
async fn a_tree_moves_between_file_systems_with_all_that_is_known_of_it() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let other = memory.path().join("tree");
    sandbox.sh(&format!("cd {} && mkdir -p tree/in && echo data > tree/in/file && chmod 640 tree/in/file && chown 7:8 tree/in/file && touch -d @1000 tree/in/file tree/in && ln -s /nowhere tree/link", folder.display())).await;
    let moved = rename(&sandbox, between(&folder.join("tree"), &other, false)).await;
    let found = std::fs::metadata(other.join("in/file"))
        .map(|found| (found.mode() & 0o777, found.uid(), found.gid(), found.mtime()));
    let target = std::fs::read_link(other.join("link"));
    let time = std::fs::metadata(other.join("in")).map(|found| found.mtime());
    let removed = remove(&sandbox, &other, true, false).await;
    assert_eq!(moved.unwrap().kind(), FileKind::Directory);
    assert_eq!((found.unwrap(), time.unwrap()), ((0o640, 7, 8, 1000), 1000));
    assert_eq!(target.unwrap(), Path::new("/nowhere"));
    assert_eq!((removed.unwrap(), names(&folder).len()), (4, 0));
}

#[tokio::test]
async fn trees_are_copied_but_not_into_themselves() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let at = |name: &str| folder.join(name);
    std::fs::create_dir_all(at("tree/in")).unwrap();
    std::fs::write(at("tree/in/file"), "data").unwrap();
    symlink("in/file", at("tree/link")).unwrap();
    copy(&sandbox, between(&at("tree"), &at("copy"), false)).await.unwrap();
    assert_eq!(std::fs::read(at("copy/link")).unwrap(), b"data");
    assert!(at("copy/link").is_symlink());
    assert_eq!(
        why(copy(&sandbox, between(&at("tree"), &at("copy"), false)).await),
        (Code::Conflict, "exists".into())
    );
    assert_eq!(
        why(copy(&sandbox, between(&at("tree"), &at("copy"), true)).await),
        (Code::Conflict, "not_empty".into())
    );
    let inside = copy(&sandbox, between(&at("tree"), &at("tree/in/copy"), false)).await;
    assert_eq!(why(inside), (Code::InvalidArgument, "into_itself".into()));
    copy(&sandbox, between(&at("tree/link"), &at("file"), false)).await.unwrap();
    assert_eq!(std::fs::read(at("file")).unwrap(), b"data");
    sandbox.sh(&format!("mkfifo {}/tree/in/fifo", folder.display())).await;
    assert_eq!(
        why(copy(&sandbox, between(&at("tree"), &at("third"), false)).await),
        (Code::InvalidArgument, "not_regular".into())
    );
    assert_eq!(
        (names(&folder), names(&at("tree/in"))),
        (vec!["copy".into(), "file".into(), "tree".into()], vec!["fifo".into(), "file".into()])
    );
}

#[tokio::test]
async fn what_is_removed_is_counted_and_links_are_not_followed() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir_all(folder.join("tree/in")).unwrap();
    std::fs::create_dir(folder.join("outside")).unwrap();
    std::fs::write(folder.join("outside/kept"), "").unwrap();
    symlink("../outside", folder.join("tree/link")).unwrap();
    assert_eq!(
        why(remove(&sandbox, &folder.join("tree"), false, false).await),
        (Code::Conflict, "not_empty".into())
    );
    assert_eq!(remove(&sandbox, &folder.join("tree"), true, false).await.unwrap(), 3);
    assert_eq!(names(&folder.join("outside")), ["kept"]);
    assert_eq!(why(remove(&sandbox, &folder.join("tree"), true, false).await).0, Code::FileNotFound);
    assert_eq!(remove(&sandbox, &folder.join("tree"), true, true).await.unwrap(), 0);
    symlink("outside", folder.join("link")).unwrap();
    assert_eq!(remove(&sandbox, &folder.join("link"), true, false).await.unwrap(), 1);
    assert_eq!(remove(&sandbox, &folder.join("outside/kept"), false, false).await.unwrap(), 1);
    assert_eq!(remove(&sandbox, &folder.join("outside/"), false, false).await.unwrap(), 1);
}
