//! The start of a file worker, and the task that owns it to its end.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;
use wire::{Code, Problem};

use super::running::{Frames, Held, RunAs, Worker, release};
use super::warm::Warm;
use crate::log;
use crate::process::supervise::{Context, spawned};
use crate::spawner::frame::{Ending, Order, Program, Report, Spawn};
use crate::spawner::link::{Link, Subscription, lost};

/// How long a file worker may clean up after its caller is gone.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(2);
/// A killed process that is still there after this hangs in the kernel; it stays until the sandbox ends.
const KILL_PATIENCE: Duration = Duration::from_secs(8);
/// Room for a few frames, so that neither side has to wait for the other in the middle of one.
const PIPE_BYTES: i32 = 512 << 10;

/// A worker whose start is under way.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) worker: Worker,
    /// The spawner's refusal, if there is one.
    pub(super) started: oneshot::Receiver<Result<(), Problem>>,
}

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
        Problem::new(Code::RateLimited, format!("no descriptors are left for another worker's pipes: {err}"))
    })?;
    let subscription = context.link.subscribe();
    let id = subscription.id;
    let user = run_as.user.clone();
    context.link.send(&Order::Spawn(order(id, run_as)), theirs).await?;
    let ((starts, started), (end, ended)) = (oneshot::channel(), oneshot::channel());
    let held = Arc::new(Mutex::new(places));
    let keeper = Keeper { link: context.link.clone(), warm: Arc::clone(warm), held: Arc::clone(&held) };
    tokio::spawn(keeper.keep(subscription, starts, end));
    let worker = Worker { id, user, to, from: Frames::new(from), ended, held };
    Ok(Starting { worker, started })
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

/// Owns a worker, and the places of its call, until it ends.
struct Keeper {
    link: Link,
    warm: Arc<Warm>,
    held: Held,
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
