//! The calls on files: checked here, run by a file worker, answered from its frames.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::agent::{
    ArchiveWritten, FileChunk, FileInfo, ListDirectoryRequest, MakeDirectoryRequest, MoveFileRequest,
    PathRequest, ReadArchiveRequest, ReadFileRequest, RemoveFileRequest, Removed, WatchEvent, WatchRequest,
    WriteArchiveRequest, WriteFileRequest,
};
use wire::{Code, Problem};

use super::incoming::{Incoming, Piece};
use crate::files::call::{Call, Places, RunAs, WorkerMessage};
use crate::files::frames::Job;
use crate::leg::{Awaited, Leg, Legs, Way};
use crate::problem::status;
use crate::process::supervise::Context;
use crate::request::{Defaults, invalid};

/// Messages that wait for a slow reader; a chunk of data is one.
const QUEUE: usize = 2;
/// The kernel refuses paths over 4096 bytes. This is larger, so that the usual refusal is the kernel's own.
const MAX_PATH_BYTES: usize = 64 << 10;
const MAX_MODE: u32 = 0o7777;
const DIGEST_BYTES: usize = 32;

/// The stream of messages that a call returns.
pub(super) type Answers<T> = ReceiverStream<Result<T, Status>>;

/// The calls on files, for one caller with these defaults.
#[derive(Debug)]
pub(super) struct Files<'a> {
    pub(super) places: &'a Places,
    pub(super) context: &'a Arc<Context>,
    pub(super) legs: &'a Legs,
    pub(super) defaults: Defaults,
}

impl Files<'_> {
    pub(super) async fn read(self, request: ReadFileRequest) -> Result<Answers<FileChunk>, Problem> {
        let run_as = self.run_as(&request.user, &[&request.path])?;
        let leg = self.legs.expect(&request.ticket, Way::Out)?;
        self.data(Job::Read(request), run_as, leg).await
    }

    pub(super) async fn write(self, mut messages: Streaming<WriteFileRequest>) -> Result<FileInfo, Problem> {
        let mut first = first(&mut messages).await?;
        check_mode(first.mode)?;
        if !first.sha256.is_empty() && first.sha256.len() != DIGEST_BYTES {
            let detail = format!("sha256 has {} bytes, not {DIGEST_BYTES}", first.sha256.len());
            return Err(invalid("sha256", &detail));
        }
        let run_as = self.run_as(&first.user, &[&first.path])?;
        let begin = std::mem::take(&mut first.data);
        let leg = self.legs.expect(&std::mem::take(&mut first.ticket), Way::In)?;
        let rest = Incoming::new(messages, first.eof, leg);
        self.upload(Job::Write(first), run_as, begin, rest).await
    }

    pub(super) async fn stat(self, request: PathRequest) -> Result<FileInfo, Problem> {
        let run_as = self.run_as(&request.user, &[&request.path])?;
        self.once(Job::Stat(request), run_as).await
    }

    pub(super) async fn list(self, request: ListDirectoryRequest) -> Result<Answers<FileInfo>, Problem> {
        let run_as = self.run_as(&request.user, &[&request.path])?;
        self.stream(Job::List(request), run_as, item).await
    }

    pub(super) async fn make_directory(self, request: MakeDirectoryRequest) -> Result<FileInfo, Problem> {
        check_mode(request.mode)?;
        let run_as = self.run_as(&request.user, &[&request.path])?;
        self.once(Job::MakeDirectory(request), run_as).await
    }

    pub(super) async fn rename(self, request: MoveFileRequest) -> Result<FileInfo, Problem> {
        let run_as = self.run_as(&request.user, &[&request.from, &request.to])?;
        self.once(Job::Move(request), run_as).await
    }

    pub(super) async fn copy(self, request: MoveFileRequest) -> Result<FileInfo, Problem> {
        let run_as = self.run_as(&request.user, &[&request.from, &request.to])?;
        self.once(Job::Copy(request), run_as).await
    }

    pub(super) async fn remove(self, request: RemoveFileRequest) -> Result<Removed, Problem> {
        let run_as = self.run_as(&request.user, &[&request.path])?;
        self.once(Job::Remove(request), run_as).await
    }

    pub(super) async fn read_archive(
        self,
        request: ReadArchiveRequest,
    ) -> Result<Answers<FileChunk>, Problem> {
        let run_as = self.run_as(&request.user, &[&request.path])?;
        let leg = self.legs.expect(&request.ticket, Way::Out)?;
        self.data(Job::ReadArchive(request), run_as, leg).await
    }

    pub(super) async fn write_archive(
        self,
        mut messages: Streaming<WriteArchiveRequest>,
    ) -> Result<ArchiveWritten, Problem> {
        let mut first = first(&mut messages).await?;
        let run_as = self.run_as(&first.user, &[&first.path])?;
        let begin = std::mem::take(&mut first.data);
        let leg = self.legs.expect(&std::mem::take(&mut first.ticket), Way::In)?;
        let rest = Incoming::new(messages, first.eof, leg);
        self.upload(Job::WriteArchive(first), run_as, begin, rest).await
    }

    pub(super) async fn watch(self, request: WatchRequest) -> Result<Answers<WatchEvent>, Problem> {
        let run_as = self.run_as(&request.user, &[&request.path])?;
        self.stream(Job::Watch(request), run_as, item).await
    }

    /// The user and working directory of a call. The default directory is used for relative paths only, so that a
    /// missing one does not affect absolute paths.
    fn run_as(&self, user: &str, paths: &[&[u8]]) -> Result<RunAs, Problem> {
        paths.iter().try_for_each(|path| check_path(path))?;
        if user.contains('\0') {
            return Err(invalid("user", "user has a NUL"));
        }
        let relative = paths.iter().any(|path| !path.starts_with(b"/"));
        let cwd = if relative { self.defaults.cwd.clone().into_bytes() } else { b"/".to_vec() };
        let user = if user.is_empty() { self.defaults.user.clone() } else { user.to_owned() };
        Ok(RunAs { cwd, user })
    }

    async fn once<T: Message + Default>(&self, job: Job, run_as: RunAs) -> Result<T, Problem> {
        match Call::ask(job, run_as, self.places, self.context).await?.1 {
            WorkerMessage::End(answer) => message(answer),
            WorkerMessage::Data(_) | WorkerMessage::Item(_) => Err(unexpected_frame()),
        }
    }

    async fn upload<T: Message + Default>(
        &self,
        job: Job,
        run_as: RunAs,
        begin: Bytes,
        rest: Incoming<impl Into<Piece>>,
    ) -> Result<T, Problem> {
        let rest = stream::unfold(rest, async |mut rest| Some((rest.next().await?, rest)));
        let chunks = Box::pin(stream::iter([Ok(begin)]).chain(rest));
        message(Call::upload(job, chunks, run_as, self.places, self.context).await?)
    }

    /// Streams what the worker sends, converted by `convert`; `None` from it ends the stream without a last message. A
    /// refusal before the first message is the result of the call itself.
    async fn stream<T: Send + 'static>(
        &self,
        job: Job,
        run_as: RunAs,
        convert: fn(WorkerMessage) -> Result<Option<T>, Problem>,
    ) -> Result<Answers<T>, Problem> {
        let (call, frame) = Call::ask(job, run_as, self.places, self.context).await?;
        Ok(answers(|answers| feed(call, frame, convert, answers)))
    }

    /// The same for bytes, which may move to a leg.
    async fn data(
        &self,
        job: Job,
        run_as: RunAs,
        leg: Option<Awaited>,
    ) -> Result<Answers<FileChunk>, Problem> {
        let (call, frame) = Call::ask(job, run_as, self.places, self.context).await?;
        Ok(answers(|answers| feed_data(call, frame, leg, answers)))
    }
}

/// The messages that `feed` sends. Stops when the caller is gone: a worker that sends nothing would otherwise outlive
/// it.
fn answers<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
    feed: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> F,
) -> Answers<T> {
    let (answers, queue) = mpsc::channel(QUEUE);
    let feeding = feed(answers.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = feeding => {}
            () = answers.closed() => {}
        }
    });
    ReceiverStream::new(queue)
}

async fn feed<T>(
    mut call: Call,
    frame: WorkerMessage,
    convert: fn(WorkerMessage) -> Result<Option<T>, Problem>,
    answers: mpsc::Sender<Result<T, Status>>,
) {
    let mut frame = Ok(frame);
    while tell(frame, convert, &answers).await {
        frame = call.next().await;
    }
}

/// Sends one message; returns whether more are to come.
async fn tell<T>(
    frame: Result<WorkerMessage, Problem>,
    convert: fn(WorkerMessage) -> Result<Option<T>, Problem>,
    answers: &mpsc::Sender<Result<T, Status>>,
) -> bool {
    let last = !matches!(frame, Ok(WorkerMessage::Data(_) | WorkerMessage::Item(_)));
    let Some(answer) = frame.and_then(convert).transpose() else { return false };
    let failed = answer.is_err();
    answers.send(answer.map_err(|problem| status(&problem))).await.is_ok() && !last && !failed
}

async fn feed_data(
    mut call: Call,
    frame: WorkerMessage,
    mut leg: Option<Awaited>,
    answers: mpsc::Sender<Result<FileChunk, Status>>,
) {
    let mut frame = Ok(frame);
    while tell(frame, chunk, &answers).await {
        frame = match leg.as_mut().and_then(Awaited::take) {
            Some(come) => {
                let moved = FileChunk { moved: true, ..FileChunk::default() };
                if answers.send(Ok(moved)).await.is_err() {
                    return;
                }
                move_over(&mut call, come).await
            }
            None => call.next().await,
        };
    }
}

/// Moves the data over the leg; returns the frame that ends them.
async fn move_over(call: &mut Call, mut leg: Leg) -> Result<WorkerMessage, Problem> {
    let broken = |err| {
        let detail = format!("the connection for the data broke: {err}");
        Problem::new(Code::StreamInterrupted, detail)
    };
    loop {
        match call.next().await? {
            WorkerMessage::Data(data) => leg.write_all(&data).await.map_err(broken)?,
            last => return leg.shutdown().await.map_err(broken).map(|()| last),
        }
    }
}

/// Converts for a file or archive: the worker's messages, and its bytes between them.
fn chunk(frame: WorkerMessage) -> Result<Option<FileChunk>, Problem> {
    match frame {
        WorkerMessage::Data(data) => Ok(Some(FileChunk { data, ..FileChunk::default() })),
        WorkerMessage::Item(bytes) | WorkerMessage::End(bytes) => message(bytes).map(Some),
    }
}

/// Converts for a list: one message each, and none at the end.
fn item<T: Message + Default>(frame: WorkerMessage) -> Result<Option<T>, Problem> {
    match frame {
        WorkerMessage::Item(bytes) => message(bytes).map(Some),
        WorkerMessage::End(_) => Ok(None),
        WorkerMessage::Data(_) => Err(unexpected_frame()),
    }
}

fn message<T: Message + Default>(bytes: Bytes) -> Result<T, Problem> {
    T::decode(bytes).map_err(|_| unexpected_frame())
}

fn unexpected_frame() -> Problem {
    Problem::new(Code::Internal, "the worker's answer does not fit this call")
}

async fn first<T>(messages: &mut Streaming<T>) -> Result<T, Problem> {
    match messages.message().await {
        Ok(Some(first)) => Ok(first),
        Ok(None) => Err(invalid("path", "the stream has no message; the first one names the path")),
        Err(_) => Err(Problem::new(Code::StreamInterrupted, "the stream broke off before its first message")),
    }
}

fn check_path(path: &[u8]) -> Result<(), Problem> {
    if path.is_empty() {
        return Err(invalid("path", "the path is empty"));
    }
    if let Some(at) = path.iter().position(|byte| *byte == 0) {
        return Err(invalid("path", &format!("the path has a NUL at byte {at}")));
    }
    if path.len() > MAX_PATH_BYTES {
        let detail = format!("the path has {} bytes, more than any path may have", path.len());
        return Err(invalid("path", &detail).with("reason", "name_too_long"));
    }
    Ok(())
}

fn check_mode(mode: Option<u32>) -> Result<(), Problem> {
    match mode {
        Some(mode) if mode > MAX_MODE => {
            Err(invalid("mode", &format!("mode {mode:#o} is not within 0 and {MAX_MODE:#o}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_arguments_are_refused_with_their_field() {
        let field = |refused: Result<(), Problem>| refused.unwrap_err().details["field"].clone();
        assert_eq!(field(check_path(b"")), "path");
        assert_eq!(field(check_path(b"/a\0b")), "path");
        assert_eq!(field(check_path(&vec![b'/'; MAX_PATH_BYTES + 1])), "path");
        assert_eq!(field(check_mode(Some(0o10_000))), "mode");
        assert!(check_path(b"/\xff").is_ok() && check_mode(Some(0o7777)).is_ok());
    }
}
