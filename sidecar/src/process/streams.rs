//! The streams of a command: the sidecar makes them, gives one end away, and uses the other without ever blocking.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, read};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::pipe_end::PipeEnd;
use super::state::Process;
use super::stream::Stream;
use super::terminal::{Promise, Terminal};
use crate::sys;

/// The largest size that a pipe can be set to.
const MAX_PIPE_BYTES: usize = 1 << 20;
/// The size of a new pipe. Kernels count what all pipes of a user may hold.
const USUAL_PIPE_BYTES: usize = 64 << 10;
/// After this many bytes from a pipe its output is a flood, for as long as much comes at a time; the pipe is made
/// larger.
const FLOOD_BYTES: usize = 1 << 20;
/// A read that brings this much is large: other tokio tasks get a turn after it.
const LARGE_BYTES: usize = 16 << 10;
/// Pauses between two reads of a flood: so long that a good part of the pipe is full by then.
const SHORTEST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(4);
/// A flood is over after this many small reads in a row; a single one happens between two writes.
const POOR_LOOKS: usize = 2;
/// Pause between two reads of a pipe that the runtime cannot watch.
const UNWATCHED_REST: Duration = Duration::from_millis(20);

/// The sidecar's ends of a command's streams.
#[derive(Debug)]
pub(super) struct Streams {
    /// None: the command reads the null device. Dropping the end closes the input.
    pub(super) stdin: Option<Arc<PipeEnd>>,
    pub(super) stdout: Output,
    /// None: the command runs on a terminal, which has one stream, or its two are one pipe.
    pub(super) stderr: Option<Output>,
    pub(super) terminal: Option<Terminal>,
}

/// Where the sidecar reads output from.
#[derive(Debug)]
pub(super) enum Output {
    /// Registered with the runtime only while it is read: most commands end before registering would pay off.
    Pipe(OwnedFd),
    Terminal(Arc<PipeEnd>),
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Terminal(end) => end.as_fd(),
        }
    }
}

/// Streams that can be used once the command runs.
#[derive(Debug)]
pub(super) enum Prepared {
    Pipes(Streams),
    Terminal(Promise),
}

impl Prepared {
    /// Makes pipes; also returns the command's ends, for the order, as descriptors 0, 1, 2.
    ///
    /// # Errors
    /// This process is out of descriptors.
    pub(super) fn pipes(with_stdin: bool, merge: bool) -> io::Result<(Self, Vec<OwnedFd>)> {
        let (stdin, child_stdin) = if with_stdin {
            let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
            (Some(Arc::new(PipeEnd::to_write(ours)?)), theirs)
        } else {
            (None, OpenOptions::new().read(true).open("/dev/null")?.into())
        };
        let (stdout, child_stdout) = output()?;
        let (stderr, child_stderr) = match merge {
            true => (None, child_stdout.try_clone()?),
            false => output().map(|(ours, theirs)| (Some(ours), theirs))?,
        };
        let streams = Streams { stdin, stdout, stderr, terminal: None };
        Ok((Self::Pipes(streams), vec![child_stdin, child_stdout, child_stderr]))
    }

    /// Prepares for a terminal, which the spawner makes; also returns the descriptor for the order.
    ///
    /// # Errors
    /// This process is out of descriptors.
    pub(super) fn terminal() -> io::Result<(Self, Vec<OwnedFd>)> {
        let (promise, theirs) = Promise::new()?;
        Ok((Self::Terminal(promise), vec![theirs]))
    }

    /// The streams; to be called once the command runs.
    ///
    /// # Errors
    /// The spawner has sent no terminal.
    pub(super) fn opened(self) -> io::Result<Streams> {
        match self {
            Self::Pipes(streams) => Ok(streams),
            Self::Terminal(promise) => {
                let terminal = promise.keep()?;
                let (stdin, stdout) =
                    (Some(Arc::clone(&terminal.end)), Output::Terminal(Arc::clone(&terminal.end)));
                Ok(Streams { stdin, stdout, stderr: None, terminal: Some(terminal) })
            }
        }
    }
}

impl Streams {
    /// Takes the output that a command left in its streams when it ended. With `waits`, at the pace of an output that
    /// waits for its readers.
    pub(super) async fn drain(&self, process: &Process, waits: bool) {
        drain(&self.stdout, process, Stream::Stdout, waits).await;
        if let Some(stderr) = &self.stderr {
            drain(stderr, process, Stream::Stderr, waits).await;
        }
    }
}

/// Only the sidecar's end is made non-blocking: the flag belongs to an end, and commands expect theirs to block.
fn output() -> io::Result<(Output, OwnedFd)> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((Output::Pipe(ours), theirs))
}

/// Reads until all writers have closed. Waits for readers of the ring only if the output does.
pub(super) async fn pump(from: &Output, process: &Process, stream: Stream) {
    match from {
        Output::Pipe(pipe) => while part(pipe.as_fd(), process, stream).await {},
        Output::Terminal(end) => drop(trickle(&end.0, process, stream, usize::MAX).await),
    }
}

/// Reads each write as it comes until so much has come that it is a flood, then large pieces until the flood is over.
/// False: the stream is at its end.
async fn part(pipe: BorrowedFd<'_>, process: &Process, stream: Stream) -> bool {
    match sys::watch(pipe, Interest::READABLE) {
        Ok(end) => {
            let swells = trickle(&end, process, stream, FLOOD_BYTES).await;
            drop(end);
            swells && flood(pipe, process, stream).await
        }
        // The limit of watched descriptors is reached; other commands may release theirs.
        Err(_) => {
            sleep(UNWATCHED_REST).await;
            empty(pipe, process, stream).await.is_some()
        }
    }
}

/// Takes output whenever some arrives. True: so much has come that it is a flood; false: the stream is at its end.
async fn trickle(
    end: &AsyncFd<impl AsRawFd + AsFd>,
    process: &Process,
    stream: Stream,
    flood_bytes: usize,
) -> bool {
    let mut taken = 0;
    while taken < flood_bytes {
        let room = process.room(stream).await;
        match end.async_io(Interest::READABLE, |fd| keep(fd.as_fd(), process, stream, room)).await {
            Ok(Kept { bytes: 0, .. }) | Err(_) => return false,
            Ok(Kept { bytes, .. }) => {
                taken = taken.saturating_add(bytes);
                // A pipe that is filled as fast as it is read would leave other tasks no turn, least of all the
                // output's readers.
                if bytes >= LARGE_BYTES {
                    yield_now().await;
                }
            }
        }
    }
    true
}

/// Reads large pieces at intervals and leaves the pipe unwatched meanwhile: being woken by every write costs reader and
/// writer more, under gVisor several times more, than moving the bytes. True: it has become a trickle; false: the
/// stream is at its end.
async fn flood(pipe: BorrowedFd<'_>, process: &Process, stream: Stream) -> bool {
    // A kernel that refuses (its limit for all pipes of a user) has still made a pipe that works.
    if resize(pipe, MAX_PIPE_BYTES).is_err() {
        return true;
    }
    let (mut rest, mut poor) = (SHORTEST_REST, 0);
    while poor < POOR_LOOKS {
        sleep(rest).await;
        let Some(taken) = empty(pipe, process, stream).await else {
            return false;
        };
        poor = if taken < LARGE_BYTES { poor + 1 } else { 0 };
        rest = if taken < MAX_PIPE_BYTES / 2 { LONGEST_REST.min(2 * rest) } else { SHORTEST_REST };
    }
    // The kernel refuses this when more has arrived meanwhile; the pipe then stays large, which does no harm.
    let _ = resize(pipe, USUAL_PIPE_BYTES);
    true
}

/// Reads everything that is there, in turns with other tasks; returns how much. None: the stream is at its end.
async fn empty(pipe: BorrowedFd<'_>, process: &Process, stream: Stream) -> Option<usize> {
    let mut taken = 0;
    loop {
        let room = process.room(stream).await;
        match keep(pipe, process, stream, room) {
            Ok(Kept { bytes: 0, .. }) => return None,
            Ok(Kept { bytes, emptied }) => {
                taken += bytes;
                if emptied {
                    return Some(taken);
                }
            }
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Some(taken),
            Err(_) => return None,
        }
        yield_now().await;
    }
}

fn resize(pipe: BorrowedFd<'_>, bytes: usize) -> nix::Result<i32> {
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(bytes as i32))
}

/// Reads directly from the descriptor, because the runtime may not know yet that data has arrived. Bounded, because a
/// daemon of the command may go on writing.
async fn drain(from: &Output, process: &Process, stream: Stream, waits: bool) {
    let mut taken = 0;
    while taken < MAX_PIPE_BYTES {
        let room = if waits { process.room(stream).await } else { usize::MAX };
        match keep(from.as_fd(), process, stream, room) {
            Ok(Kept { bytes, .. }) if bytes > 0 => taken += bytes,
            _ => return,
        }
    }
}

/// What one read of a pipe has brought.
struct Kept {
    bytes: usize,
    /// Whether there was less than was asked for.
    emptied: bool,
}

fn keep(fd: BorrowedFd<'_>, process: &Process, stream: Stream, max_bytes: usize) -> io::Result<Kept> {
    let mut asked = 0;
    let bytes = process.output(stream).fill(max_bytes, |space| {
        asked = space.len();
        read(fd, space)
    })?;
    process.activity.change(|()| ());
    Ok(Kept { bytes, emptied: bytes < asked })
}

#[cfg(test)]
mod tests;
