//! A file worker as a process: its start, the sidecar's ends of its pipes, its end.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;
use wire::{Code, Problem};

use super::frames::{HEADER_BYTES, Kind, parse};
use super::warm::Warm;
use crate::log;
use crate::process::supervise::{Context, spawned};
use crate::spawner::frame::{Ending, Order, OsBytes, Program, Report, Spawn};
use crate::spawner::link::{Link, Subscription, lost};
use crate::sys;

/// How long a file worker may clean up after its caller is gone.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(2);
/// A killed process that is still there after this hangs in the kernel; it stays until the sandbox ends.
const KILL_PATIENCE: Duration = Duration::from_secs(8);
/// Room for a few frames, so that neither side has to wait for the other in the middle of one.
const PIPE_BYTES: i32 = 512 << 10;
/// Size of a first read: many small frames, or the beginning of a large one.
const FIRST_READ_BYTES: usize = 8 << 10;

/// The user and the directory that a file worker runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// Working directory, where relative paths begin; empty: the target's.
    pub cwd: OsBytes,
    /// Name or uid, optionally with a group; empty: the target's.
    pub user: String,
}

impl RunAs {
    /// Whether a worker that stays may serve this: its directory is none that may have been replaced meanwhile.
    pub(super) fn may_share(&self) -> bool {
        self.cwd == b"/"
    }
}

/// A running file worker. When this is dropped, the worker gets a moment to clean up and is then killed.
#[derive(Debug)]
pub(super) struct Worker {
    /// That of its reports.
    pub(super) id: u64,
    /// As the caller has named it.
    pub(super) user: String,
    pub(super) to: Sender,
    pub(super) from: Frames,
    pub(super) ended: oneshot::Receiver<Result<Ending, Problem>>,
    /// The places that its call has taken; they are free when the call is over, or the worker has ended.
    held: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
}

/// A worker whose start is under way.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) worker: Worker,
    /// The spawner's refusal, if there is one.
    pub(super) started: oneshot::Receiver<Result<(), Problem>>,
}

impl Worker {
    /// Orders a file worker.
    ///
    /// # Errors
    /// No descriptors are left, or the sandbox has ended.
    pub(super) async fn start(
        run_as: RunAs,
        places: Vec<OwnedSemaphorePermit>,
        warm: &Arc<Warm>,
        context: &Context,
    ) -> Result<Starting, Problem> {
        let (to, from, theirs) = pipes().map_err(|err| {
            Problem::new(
                Code::RateLimited,
                format!("no descriptors are left for another worker's pipes: {err}"),
            )
        })?;
        let subscription = context.link.subscribe();
        let id = subscription.id;
        let user = run_as.user.clone();
        context.link.send(&Order::Spawn(order(id, run_as)), theirs).await?;
        let ((starts, started), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let held = Arc::new(Mutex::new(places));
        let keeper = Keeper { link: context.link.clone(), warm: Arc::clone(warm), held: Arc::clone(&held) };
        tokio::spawn(keeper.keep(subscription, starts, end));
        let from = Frames { from, read: BytesMut::new() };
        Ok(Starting { worker: Self { id, user, to, from, ended, held }, started })
    }

    /// Takes the places of the next call.
    pub(super) fn hold(&self, places: Vec<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// Returns the places of a call that is over.
    pub(super) fn release(&self) -> Vec<OwnedSemaphorePermit> {
        release(&self.held)
    }

    /// Whether all of a request is still in the pipe of a worker that has ended: it has not begun.
    pub(super) fn has_not_read(&self, request_bytes: usize) -> bool {
        sys::unread_bytes(self.to.as_fd()).is_ok_and(|unread| unread == request_bytes)
    }
}

/// A file worker's frames. Each read takes as much as has arrived.
#[derive(Debug)]
pub(super) struct Frames {
    from: Receiver,
    /// Received bytes that are not returned yet.
    read: BytesMut,
}

impl Frames {
    /// Whether nothing has come that was not returned.
    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// Gives back the memory that a call has needed.
    pub(super) fn shrink(&mut self) {
        self.read = BytesMut::new();
    }

    pub(super) async fn next(&mut self) -> io::Result<(Kind, Bytes)> {
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

fn release(held: &Mutex<Vec<OwnedSemaphorePermit>>) -> Vec<OwnedSemaphorePermit> {
    std::mem::take(&mut held.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Owns a worker, and the places of its call, until it ends.
struct Keeper {
    link: Link,
    warm: Arc<Warm>,
    held: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
}

impl Keeper {
    /// When the receiver of `ended` is dropped, nobody wants the worker any more.
    async fn keep(
        self,
        mut subscription: Subscription,
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
        let id = subscription.id;
        tokio::select! {
            biased;
            ending = end(&mut subscription) => {
                let _ = ended.send(ending);
                self.warm.end(id);
            }
            () = ended.closed() => self.finish(subscription).await,
            () = self.warm.watch(id) => {}
        }
        drop(release(&self.held));
    }

    /// Lets the worker clean up, then kills it.
    async fn finish(&self, mut subscription: Subscription) {
        if timeout(CLEANUP_PATIENCE, end(&mut subscription)).await.is_ok() {
            return;
        }
        let signal =
            Order::Signal { id: subscription.id, signal: libc::SIGKILL.cast_unsigned(), tree: false };
        let _ = self.link.send(&signal, Vec::new()).await;
        if timeout(KILL_PATIENCE, end(&mut subscription)).await.is_err() {
            log::event("worker_left", &[("id", &subscription.id)]);
        }
    }
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
