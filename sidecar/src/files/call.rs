//! The sidecar's end of a file worker: its start, its frames, its end.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, Stream, StreamExt};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use wire::{Code, Problem};

use super::frames::{HEADER_BYTES, Job, Kind, MAX_PAYLOAD_BYTES, header, parse};
use crate::log;
use crate::oom;
use crate::process::supervise::{Context, spawned};
use crate::spawner::frame::{Ending, Order, OsBytes, Program, Report, Spawn};
use crate::spawner::link::{Link, Subscription, lost};

/// File workers at a time; further calls queue.
const MAX_WORKERS: usize = 32;
/// Calls in the queue. What their callers send stays unread meanwhile (backpressure).
const MAX_WAITING: usize = 96;
/// Calls that watch at a time; a watch may last for days.
const MAX_WATCHES: usize = 32;
/// How long a file worker may clean up after its caller is gone.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(2);
/// A killed process that is still there after this hangs in the kernel; it stays until the sandbox ends.
const KILL_PATIENCE: Duration = Duration::from_secs(8);
/// Room for a few frames, so that neither side has to wait for the other in the middle of one.
const PIPE_BYTES: i32 = 512 << 10;
/// Chunks of an upload that go to the worker in one write. An upload holds these and the chunk after them in memory.
const MOST_TOGETHER: usize = 2;
/// Size of a first read: many small frames, or the beginning of a large one.
const FIRST_READ_BYTES: usize = 8 << 10;

/// Limits how many file workers there may be. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    calls: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

/// The user and the directory that a file worker runs with.
#[derive(Debug, Clone)]
pub struct RunAs {
    /// Working directory, where relative paths begin; empty: the target's.
    pub cwd: OsBytes,
    /// Name or uid, optionally with a group; empty: the target's.
    pub user: String,
}

/// A running file worker. When this is dropped, the worker gets a moment to clean up and is then killed.
#[derive(Debug)]
pub struct Call {
    to: Sender,
    from: Frames,
    ended: oneshot::Receiver<Result<Ending, Problem>>,
    ooms_before: u64,
    context: Arc<Context>,
}

/// A file worker's frames. Each read takes as much as has arrived.
#[derive(Debug)]
struct Frames {
    from: Receiver,
    /// Received bytes that are not returned yet.
    read: BytesMut,
}

impl Frames {
    async fn next(&mut self) -> io::Result<(Kind, Bytes)> {
        loop {
            let mut wanted = FIRST_READ_BYTES;
            if let Some(head) = self.read.first_chunk::<HEADER_BYTES>() {
                let (kind, length) = parse(*head).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                if self.read.len() >= HEADER_BYTES + length {
                    self.read.advance(HEADER_BYTES);
                    let payload = self.read.split_to(length).freeze();
                    if self.read.is_empty() {
                        // The next frame is usually as large.
                        self.read.reserve(HEADER_BYTES + length);
                    }
                    return Ok((kind, payload));
                }
                wanted = HEADER_BYTES + length - self.read.len();
            }
            self.read.reserve(wanted);
            if self.from.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// What a file worker sends.
#[derive(Debug)]
pub enum WorkerMessage {
    /// Bytes of a file or an archive.
    Data(Bytes),
    /// One message of a stream.
    Item(Bytes),
    /// The answer; nothing follows.
    End(Bytes),
}

impl Default for Places {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            calls: places(MAX_WORKERS + MAX_WAITING),
            workers: places(MAX_WORKERS),
            watches: places(MAX_WATCHES),
        }
    }
}

impl Places {
    async fn take(&self, job: &Job) -> Result<Vec<OwnedSemaphorePermit>, Problem> {
        let full = |what: &str, limit: usize| {
            let detail = format!("{limit} {what} are under way in this sandbox, which is the limit");
            Problem::new(Code::RateLimited, detail).with("limit", limit)
        };
        if matches!(job, Job::Watch(_)) {
            let place = Arc::clone(&self.watches).try_acquire_owned();
            return place.map(|place| vec![place]).map_err(|_| full("watches", MAX_WATCHES));
        }
        let call = Arc::clone(&self.calls).try_acquire_owned();
        let call = call.map_err(|_| full("calls on files", MAX_WORKERS + MAX_WAITING))?;
        let worker = Arc::clone(&self.workers).acquire_owned().await.map_err(|_| lost())?;
        Ok(vec![call, worker])
    }
}

impl Call {
    /// Starts a file worker for `job`; waits until there is room for it.
    ///
    /// # Errors
    /// The spawner's refusals (user, directory, processes), too many calls, or the sandbox's end.
    pub async fn start(
        job: &Job,
        run_as: RunAs,
        places: &Places,
        context: &Arc<Context>,
    ) -> Result<Self, Problem> {
        let payload = job.encode();
        if payload.len() > MAX_PAYLOAD_BYTES {
            let detail = format!("the request has {} bytes; the limit is {MAX_PAYLOAD_BYTES}", payload.len());
            return Err(Problem::new(Code::PayloadTooLarge, detail).with("limit_bytes", MAX_PAYLOAD_BYTES));
        }
        let permits = places.take(job).await?;
        let (to, from, theirs) = pipes().map_err(|err| {
            Problem::new(
                Code::RateLimited,
                format!("no descriptors are left for another worker's pipes: {err}"),
            )
        })?;
        let ooms_before = context.oom.read();
        let subscription = context.link.subscribe();
        context.link.send(&Order::Spawn(order(subscription.id, run_as)), theirs).await?;
        let ((started, start), (end, ended)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(keep(subscription, context.link.clone(), permits, started, end));
        start.await.map_err(|_| lost())??;
        let from = Frames { from, read: BytesMut::new() };
        let mut call = Self { to, from, ended, ooms_before, context: Arc::clone(context) };
        // A worker that is gone already has sent its problem, or its ending gives the reason.
        let _ = call.to.write_all(&[&header(Kind::Job, payload.len())[..], &payload].concat()).await;
        Ok(call)
    }

    /// Waits for what the worker sends next.
    ///
    /// # Errors
    /// The worker's problem; `oom_killed` or `conflict` when it was killed.
    pub async fn next(&mut self) -> Result<WorkerMessage, Problem> {
        let Ok((kind, payload)) = self.from.next().await else {
            return Err(self.end().await);
        };
        match kind {
            Kind::Data => Ok(WorkerMessage::Data(payload)),
            Kind::Item => Ok(WorkerMessage::Item(payload)),
            Kind::End => Ok(WorkerMessage::End(payload)),
            Kind::Problem => Err(Problem::decode(&payload)
                .unwrap_or_else(|| Problem::new(Code::Internal, "the worker's problem cannot be read"))),
            Kind::Job => Err(Problem::new(Code::Internal, "the worker has sent a job")),
        }
    }

    /// Sends `chunks` to the worker and returns its answer, which may come before all chunks are sent.
    ///
    /// # Errors
    /// As for [`Call::next`]; `stream_interrupted` when one of the chunks is an error.
    pub async fn upload<E>(
        mut self,
        mut chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<Bytes, Problem> {
        let answer = self.exchange(&mut chunks).await?;
        match answer {
            Ok((Kind::End, payload)) => Ok(payload),
            Ok((Kind::Problem, payload)) => Err(Problem::decode(&payload)
                .unwrap_or_else(|| Problem::new(Code::Internal, "the worker's problem cannot be read"))),
            Ok((kind, _)) => Err(Problem::new(Code::Internal, format!("the worker answered with {kind:?}"))),
            Err(_) => Err(self.end().await),
        }
    }

    /// Sends and receives at the same time: a worker may answer (its disk is full) before it has read everything.
    async fn exchange<E>(
        &mut self,
        chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<io::Result<(Kind, Bytes)>, Problem> {
        let mut answer = std::pin::pin!(self.from.next());
        let whole = tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer),
            whole = send(&mut self.to, chunks) => whole,
        };
        if whole {
            return Ok(answer.await);
        }
        Err(Problem::new(Code::StreamInterrupted, "the upload broke off before its end"))
    }

    /// Why the worker ended without an answer.
    async fn end(&mut self) -> Problem {
        let ending = match (&mut self.ended).await {
            Ok(Ok(ending)) => ending,
            Ok(Err(problem)) => return problem,
            Err(_) => return lost(),
        };
        if oom::looks_killed(ending) && self.context.oom.read() > self.ooms_before {
            return Problem::new(Code::OomKilled, "the kernel killed the call's worker for memory");
        }
        match ending {
            Ending::Signalled(signal) if signal == libc::SIGKILL.cast_unsigned() => {
                let detail = "a process of the sandbox killed the call's worker";
                Problem::new(Code::Conflict, detail).with("reason", "worker_killed")
            }
            other => {
                Problem::new(Code::Internal, format!("the call's worker ended without an answer: {other:?}"))
            }
        }
    }
}

/// Sends the data and their end. False: the caller's data broke off. A worker that stops reading has sent its reason.
async fn send<E>(to: &mut Sender, chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin)) -> bool {
    let mut next = chunks.next().await;
    while let Some(first) = next {
        let Ok(first) = first else { return false };
        let mut batch = vec![first];
        let came = loop {
            match chunks.next().now_or_never() {
                Some(Some(Ok(chunk))) if batch.len() < MOST_TOGETHER => batch.push(chunk),
                other => break other,
            }
        };
        if data(to, &batch).await.is_err() {
            return true;
        }
        next = match came {
            Some(came) => came,
            None => chunks.next().await,
        };
    }
    let _ = to.write_all(&header(Kind::End, 0)).await;
    true
}

/// Sends the chunks that arrived together in one write: nearly all of its cost is waking the worker.
async fn data(to: &mut Sender, chunks: &[Bytes]) -> io::Result<()> {
    let payloads: Vec<_> = chunks.iter().flat_map(|chunk| chunk.chunks(MAX_PAYLOAD_BYTES)).collect();
    let heads: Vec<_> = payloads.iter().map(|payload| header(Kind::Data, payload.len())).collect();
    let frames = heads.iter().zip(payloads);
    let mut slices: Vec<_> =
        frames.flat_map(|(head, payload)| [IoSlice::new(head), IoSlice::new(payload)]).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match to.write_vectored(rest).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut rest, count),
        }
    }
    Ok(())
}

fn order(id: u64, run_as: RunAs) -> Spawn {
    Spawn {
        id,
        exec_id: "files".to_owned(),
        program: Program::Worker,
        cwd: run_as.cwd,
        user: run_as.user,
        umask: None,
        terminal: None,
        env: Vec::new(),
        prompt: true,
    }
}

/// The sidecar's two ends, and the worker's standard input, output and error.
fn pipes() -> io::Result<(Sender, Receiver, Vec<OwnedFd>)> {
    let (stdin, to) = pipe2(OFlag::O_CLOEXEC)?;
    let (from, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    for pipe in [&to, &from] {
        // A kernel that refuses (its limit for all pipes of a user) has still made a pipe that works.
        let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    }
    let stderr = OpenOptions::new().write(true).open("/dev/null")?;
    Ok((Sender::from_owned_fd(to)?, Receiver::from_owned_fd(from)?, vec![stdin, stdout, stderr.into()]))
}

/// Owns a worker, and its permits, until it ends. When the receiver of `ended` is dropped, the call has been cancelled.
async fn keep(
    mut subscription: Subscription,
    link: Link,
    places: Vec<OwnedSemaphorePermit>,
    started: oneshot::Sender<Result<(), Problem>>,
    mut ended: oneshot::Sender<Result<Ending, Problem>>,
) {
    let refused = spawned(&mut subscription).await.map(drop);
    let runs = refused.is_ok();
    // A caller that has dropped the receiver has dropped the pipes too, which ends the worker.
    let _ = started.send(refused);
    if !runs {
        return;
    }
    tokio::select! {
        biased;
        ending = end(&mut subscription) => {
            let _ = ended.send(ending);
            return;
        }
        () = ended.closed() => {}
    }
    if timeout(CLEANUP_PATIENCE, end(&mut subscription)).await.is_err() {
        let signal =
            Order::Signal { id: subscription.id, signal: libc::SIGKILL.cast_unsigned(), tree: false };
        let _ = link.send(&signal, Vec::new()).await;
        if timeout(KILL_PATIENCE, end(&mut subscription)).await.is_err() {
            log::event("worker_left", &[("id", &subscription.id)]);
        }
    }
    drop(places);
}

async fn end(subscription: &mut Subscription) -> Result<Ending, Problem> {
    loop {
        match subscription.reports.recv().await {
            Some(Report::Ended { ending, .. }) => return Ok(ending),
            Some(_) => {}
            None => return Err(lost()),
        }
    }
}
