//! Watching for changes.

use std::path::PathBuf;

use wire::Code;
use wire::agent::{Change, WatchEvent, WatchRequest};

use super::*;
use crate::sandbox::LIMIT;

struct Watching {
    stream: tonic::Streaming<WatchEvent>,
    root: PathBuf,
}

impl Watching {
    async fn new(sandbox: &Sandbox, root: &Path, recursive: bool) -> Self {
        let request = WatchRequest { path: bytes(root), recursive, ..Default::default() };
        let stream = sandbox.client.clone().watch_files(signed(request)).await.unwrap().into_inner();
        let mut watching = Self { stream, root: root.to_owned() };
        assert_eq!(watching.next().await.unwrap().0, Change::Watching);
        watching
    }

    async fn next(&mut self) -> Option<(Change, String)> {
        let event = tokio::time::timeout(LIMIT, self.stream.message()).await.unwrap().unwrap()?;
        let prefix = format!("{}/", self.root.display());
        let short = |path: &[u8]| String::from_utf8_lossy(path).replace(&prefix, "");
        let text = match event.change() {
            Change::Moved => format!("{} > {}", short(&event.from), short(&event.path)),
            _ => short(&event.path),
        };
        Some((event.change(), text))
    }

    /// Skips all events before this one.
    async fn until(&mut self, change: Change, path: &str) {
        while self.next().await.unwrap() != (change, path.to_owned()) {}
    }
}

#[tokio::test]
async fn changes_are_told_as_they_come_also_below_what_is_new() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir(folder.join("old")).unwrap();
    let mut watching = Watching::new(&sandbox, &folder, true).await;
    std::fs::write(folder.join("old/a"), "x").unwrap();
    assert_eq!(watching.next().await.unwrap(), (Change::Created, "old/a".into()));
    watching.until(Change::Written, "old/a").await;
    std::fs::create_dir_all(folder.join("new/deep")).unwrap();
    watching.until(Change::Created, "new").await;
    watching.until(Change::Created, "new/deep").await;
    std::fs::write(folder.join("new/deep/b"), "x").unwrap();
    watching.until(Change::Written, "new/deep/b").await;
    std::fs::rename(folder.join("new"), folder.join("newer")).unwrap();
    watching.until(Change::Moved, "new > newer").await;
    std::fs::remove_file(folder.join("newer/deep/b")).unwrap();
    watching.until(Change::Removed, "newer/deep/b").await;
    sandbox.sh(&format!("chmod 600 {}/old/a", folder.display())).await;
    watching.until(Change::Attributes, "old/a").await;
    put(&sandbox, folder.join("old/a"), b"replaced").await.unwrap();
    assert_eq!(
        watching.next().await.unwrap(),
        (Change::Written, "old/a".into()),
        "temporary names are not reported"
    );
    std::fs::remove_dir_all(&folder).unwrap();
    while watching.next().await.is_some() {}
}

#[tokio::test]
async fn a_file_is_watched_through_its_replacements_and_one_that_is_not_there_refused() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::write(folder.join("file"), "").unwrap();
    let mut watching = Watching::new(&sandbox, &folder.join("file"), false).await;
    std::fs::write(folder.join("other"), "").unwrap();
    for _ in 0..2 {
        std::fs::write(folder.join("next"), "x").unwrap();
        std::fs::rename(folder.join("next"), folder.join("file")).unwrap();
        let (change, path) = watching.next().await.unwrap();
        assert_eq!((change, path), (Change::Created, folder.join("file").display().to_string()));
    }
    let request = WatchRequest { path: bytes(folder.join("none")), ..Default::default() };
    let refused = sandbox.client.clone().watch_files(signed(request)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::FileNotFound);
}

#[tokio::test]
async fn watchers_are_bounded_and_leave_room_for_everything_else() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let mut watching = Vec::new();
    for _ in 0..32 {
        watching.push(Watching::new(&sandbox, &folder, true).await);
    }
    let request = WatchRequest { path: bytes(&folder), ..Default::default() };
    let refused = sandbox.client.clone().watch_files(signed(request)).await.unwrap_err();
    assert_eq!(problem(&refused).code, Code::RateLimited);
    put(&sandbox, folder.join("file"), b"x").await.unwrap();
    drop(watching);
    // That of the upload stays.
    sandbox.until("pgrep -c rollbox-files", "1\n").await;
}
