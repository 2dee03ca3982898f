//! Files of the fake sidecar, in memory. Some paths are special: `/hang` never ends, `/endless` sends bytes without
//! end, `/broken` fails after its first bytes, `/full` refuses what is written to it, `/many` is a directory with any
//! number of entries. `/moved` continues over a leg, as do `/moved-broken`, which fails there, and `/moved-held`,
//! whose leg stays silent. Writes to these take a leg too: `/moved-broken` is full in the middle of it, and
//! `/moved-held` only closes it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};
use wire::agent::{self, Change, FileChunk, FileInfo, FileKind, WatchEvent};

use super::serve::Leg;
use super::sidecar::{Events, status};

pub const CHUNK: usize = 64 << 10;

#[derive(Debug)]
pub struct Files {
    by_path: Mutex<BTreeMap<Vec<u8>, Bytes>>,
    /// Chunks of `/endless` that were sent.
    chunks: Arc<watch::Sender<usize>>,
    /// Streams to or from callers that left before the end.
    dropped: Arc<watch::Sender<usize>>,
    /// First messages of writes.
    begun: watch::Sender<Vec<agent::WriteFileRequest>>,
    legs: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Leg>>>,
}

/// Counts a stream as dropped unless it ended.
struct Watched(Arc<watch::Sender<usize>>, bool);

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.1 {
            self.0.send_modify(|dropped| *dropped += 1);
        }
    }
}

/// So many bytes go as messages until the leg is dialled, then as many others over the leg.
pub const MOVED: usize = 2 << 20;

async fn moved(
    answers: mpsc::Sender<Result<FileChunk, Status>>,
    legs: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Leg>>>,
    request: agent::ReadFileRequest,
) {
    let first = FileChunk { info: Some(info(b"/moved", 0)), ..FileChunk::default() };
    answers.send(Ok(first)).await.unwrap();
    for _ in 0..MOVED / CHUNK {
        let data = Bytes::from(vec![b'm'; CHUNK]);
        answers.send(Ok(FileChunk { data, ..FileChunk::default() })).await.unwrap();
    }
    let (brought, mut leg) = legs.lock().await.recv().await.unwrap();
    assert_eq!(brought, request.ticket);
    answers.send(Ok(FileChunk { moved: true, ..FileChunk::default() })).await.unwrap();
    let last = if request.path == b"/moved" {
        Ok(FileChunk { sha256: vec![0xab; 32], ..FileChunk::default() })
    } else {
        Err(status("no_space"))
    };
    // The call's last message overtakes the bytes on the leg.
    if request.path == b"/moved-held" {
        answers.send(last).await.unwrap();
        return answers.closed().await;
    }
    let data = vec![b'l'; MOVED];
    let (sent, written) = tokio::join!(answers.send(last), leg.write_all(&data));
    sent.unwrap();
    written.unwrap();
}

/// Accepts the leg with `ticket` and confirms it, so that the gateway sends.
async fn answered(
    legs: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Leg>>>,
    ticket: Vec<u8>,
) -> UnixStream {
    let (brought, mut leg) = legs.lock().await.recv().await.unwrap();
    assert_eq!(brought, ticket);
    leg.write_all(b"LEG ").await.unwrap();
    leg
}

impl Files {
    pub fn new(legs: mpsc::UnboundedReceiver<Leg>) -> Self {
        Self {
            by_path: Mutex::default(),
            chunks: Arc::default(),
            dropped: Arc::default(),
            begun: watch::Sender::default(),
            legs: Arc::new(legs.into()),
        }
    }

    pub fn put(&self, path: &str, data: impl Into<Bytes>) {
        self.by_path.lock().unwrap().insert(path.into(), data.into());
    }

    pub fn get(&self, path: &str) -> Option<Bytes> {
        self.by_path.lock().unwrap().get(path.as_bytes()).cloned()
    }

    pub fn chunks(&self) -> usize {
        *self.chunks.borrow()
    }

    pub async fn dropped(&self, count: usize) {
        self.dropped.subscribe().wait_for(|dropped| *dropped >= count).await.unwrap();
    }

    /// Completes when this many writes have begun.
    pub async fn begun(&self, count: usize) -> Vec<agent::WriteFileRequest> {
        self.begun.subscribe().wait_for(|begun| begun.len() >= count).await.unwrap().clone()
    }

    fn find(&self, path: &[u8]) -> Result<Bytes, Status> {
        self.by_path.lock().unwrap().get(path).cloned().ok_or_else(|| status("file_not_found"))
    }

    pub fn stat(&self, path: &[u8]) -> Result<FileInfo, Status> {
        Ok(info(path, self.find(path)?.len()))
    }

    pub fn read(&self, request: &agent::ReadFileRequest) -> Result<Events<FileChunk>, Status> {
        let chunk = |data: Bytes| Ok(FileChunk { data, ..FileChunk::default() });
        let watched = Watched(Arc::clone(&self.dropped), false);
        match request.path.as_slice() {
            b"/hang" => return Ok(Box::pin(held(stream::pending(), watched))),
            b"/broken" => {
                let broken = [chunk(Bytes::from_static(b"some")), Err(status("no_space"))];
                return Ok(Box::pin(stream::iter(broken)));
            }
            b"/endless" => {
                let chunks = Arc::clone(&self.chunks);
                let endless = stream::repeat_with(move || {
                    chunks.send_modify(|chunks| *chunks += 1);
                    chunk(Bytes::from(vec![b'x'; CHUNK]))
                });
                return Ok(Box::pin(held(endless, watched)));
            }
            b"/moved" | b"/moved-broken" | b"/moved-held" => {
                let (answers, queue) = mpsc::channel(1);
                tokio::spawn(moved(answers, Arc::clone(&self.legs), request.clone()));
                return Ok(Box::pin(stream::unfold(queue, async |mut queue| {
                    Some((queue.recv().await?, queue))
                })));
            }
            _ => {}
        }
        let whole = self.find(&request.path)?;
        let size = whole.len();
        let from = usize::try_from(request.offset_bytes).unwrap().min(size);
        let length = match request.length_bytes {
            0 => size - from,
            length => usize::try_from(length).unwrap().min(size - from),
        };
        let part = whole.slice(from..from + length);
        let first = FileChunk { info: Some(info(&request.path, size)), ..FileChunk::default() };
        let last = FileChunk { sha256: Sha256::digest(&part).to_vec(), ..FileChunk::default() };
        let pieces: Vec<Bytes> =
            (0..length).step_by(CHUNK).map(|at| part.slice(at..(at + CHUNK).min(length))).collect();
        let mut watched = watched;
        watched.1 = true;
        let middle = stream::iter(pieces).map(chunk);
        Ok(Box::pin(stream::iter([Ok(first)]).chain(middle).chain(stream::iter([Ok(last)]))))
    }

    pub async fn write(&self, mut messages: Streaming<agent::WriteFileRequest>) -> Result<FileInfo, Status> {
        let mut watched = Watched(Arc::clone(&self.dropped), false);
        let first = messages.message().await?.unwrap();
        self.begun.send_modify(|begun| begun.push(first.clone()));
        let mut data = first.data.to_vec();
        let leg = answered(Arc::clone(&self.legs), first.ticket.clone());
        let mut leg = first.path.starts_with(b"/moved").then(|| tokio::spawn(leg));
        let mut moved_bytes = 0;
        let mut ended = first.eof;
        while !ended {
            let message = messages.message().await?.ok_or_else(cut)?;
            data.extend_from_slice(&message.data);
            if message.moved {
                let mut leg = leg.take().unwrap().await.unwrap();
                match first.path.as_slice() {
                    b"/moved-broken" => {
                        leg.read_exact(&mut [0; CHUNK]).await.unwrap();
                        watched.1 = true;
                        return Err(status("no_space"));
                    }
                    b"/moved-held" => drop(leg),
                    _ => moved_bytes = leg.read_to_end(&mut data).await.unwrap() as u64,
                }
            }
            if first.path == b"/full" {
                watched.1 = true;
                return Err(status("no_space"));
            }
            ended = message.eof;
            assert!(!ended || message.moved_bytes == moved_bytes);
        }
        watched.1 = true;
        let written = FileInfo { sha256: Sha256::digest(&data).to_vec(), ..info(&first.path, data.len()) };
        self.by_path.lock().unwrap().insert(first.path, data.into());
        Ok(written)
    }

    pub async fn unpack(
        &self,
        mut messages: Streaming<agent::WriteArchiveRequest>,
    ) -> Result<agent::ArchiveWritten, Status> {
        let mut watched = Watched(Arc::clone(&self.dropped), false);
        let first = messages.message().await?.unwrap();
        let mut data = Vec::new();
        loop {
            let message = messages.message().await?.ok_or_else(cut)?;
            data.extend_from_slice(&message.data);
            if message.eof {
                break;
            }
        }
        watched.1 = true;
        let size_bytes = data.len() as u64;
        self.by_path.lock().unwrap().insert(first.path, data.into());
        Ok(agent::ArchiveWritten { count: 1, size_bytes, skipped: vec!["dev/null".into()] })
    }

    pub fn list(&self, request: &agent::ListDirectoryRequest) -> Result<Events<FileInfo>, Status> {
        if request.path == b"/many" {
            let limit = usize::try_from(request.limit).unwrap();
            let many = (0..limit).map(|n| Ok(info(format!("/many/{n}").as_bytes(), n)));
            return Ok(Box::pin(stream::iter(many.collect::<Vec<_>>())));
        }
        let prefix = [request.path.as_slice(), b"/"].concat();
        let files = self.by_path.lock().unwrap();
        let below = files.iter().filter(|(path, _)| path.starts_with(&prefix));
        let found: Vec<_> = below.map(|(path, data)| Ok(info(path, data.len()))).collect();
        if found.is_empty() { Err(status("file_not_found")) } else { Ok(Box::pin(stream::iter(found))) }
    }

    pub fn make(&self, request: &agent::MakeDirectoryRequest) -> Result<FileInfo, Status> {
        let mut made = info(&request.path, 0);
        made.set_kind(FileKind::Directory);
        made.mode = request.mode.unwrap_or(0o755);
        Ok(made)
    }

    pub fn copy(&self, request: &agent::MoveFileRequest, removes: bool) -> Result<FileInfo, Status> {
        let data = self.find(&request.from)?;
        let mut files = self.by_path.lock().unwrap();
        if files.contains_key(&request.to) && !request.replace {
            return Err(status("conflict"));
        }
        if removes {
            files.remove(&request.from);
        }
        files.insert(request.to.clone(), data.clone());
        Ok(info(&request.to, data.len()))
    }

    pub fn remove(&self, request: &agent::RemoveFileRequest) -> Result<agent::Removed, Status> {
        match self.by_path.lock().unwrap().remove(&request.path) {
            Some(_) => Ok(agent::Removed { count: 1 }),
            None if request.missing_ok => Ok(agent::Removed { count: 0 }),
            None => Err(status("file_not_found")),
        }
    }

    pub fn watch(&self, path: &[u8]) -> Result<Events<WatchEvent>, Status> {
        let watched = Watched(Arc::clone(&self.dropped), false);
        let event = |change: Change, from: &[u8]| {
            let mut event = WatchEvent { path: path.to_owned(), from: from.to_owned(), ..Default::default() };
            event.set_change(change);
            Ok(event)
        };
        let events = [event(Change::Watching, b""), event(Change::Moved, b"/old")];
        Ok(Box::pin(held(stream::iter(events).chain(stream::pending()), watched)))
    }
}

/// Returns the stream, with a value that is dropped together with it.
fn held<T: Send + 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
    watched: Watched,
) -> Pin<Box<dyn Stream<Item = T> + Send>> {
    Box::pin(stream.map(move |item| {
        let _held = &watched;
        item
    }))
}

fn info(path: &[u8], size: usize) -> FileInfo {
    let mut info =
        FileInfo { path: path.to_owned(), size_bytes: size as u64, mode: 0o644, ..FileInfo::default() };
    info.set_kind(FileKind::File);
    info
}

fn cut() -> Status {
    Status::cancelled("the data broke off before their end")
}
