//! The streams of a command: made here, one end given away, the other read and written without ever blocking.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, read, write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::terminal::{Promise, Terminal};
use super::{Process, Stream};
use crate::sys;

/// The most that a pipe can be made to hold.
const MAX_PIPE_BYTES: usize = 1 << 20;
/// What one holds as it is made. Kernels count what all pipes of a user may hold.
const USUAL_PIPE_BYTES: usize = 64 << 10;
/// Once so much has come through a pipe it is a flood for as long as much comes at a time, and made to hold more.
const FLOOD_BYTES: usize = 1 << 20;
/// Who writes so much at a time leaves the others a turn after each.
const LARGE_BYTES: usize = 16 << 10;
/// How long a flood that has been caught up with is left to itself: so long that a good part of the pipe is full then.
const SHORTEST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(4);
/// A flood is over when so many looks in a row have brought little: one comes between two writes.
const POOR_LOOKS: usize = 2;
/// Between looks into a pipe that the runtime cannot watch.
const UNWATCHED_REST: Duration = Duration::from_millis(20);

/// Our end of a pipe, or of a terminal.
#[derive(Debug)]
pub(super) struct Side(AsyncFd<OwnedFd>);

impl Side {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        // The flag belongs to our end alone; commands expect theirs to block.
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self(sys::watch(fd, interest)?))
    }

    pub(super) fn both_ways(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE | Interest::WRITABLE)
    }

    pub(super) fn to_write(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::WRITABLE)
    }

    /// Writes some of `data`, once there is space.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub(super) async fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |fd| Ok(write(fd, data)?)).await
    }
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// Our ends of a command's streams.
#[derive(Debug)]
pub(super) struct Streams {
    /// None: the command reads the null device. Whoever takes it closes the input by dropping it.
    pub(super) stdin: Option<Arc<Side>>,
    pub(super) stdout: Output,
    /// None: there is only a terminal.
    pub(super) stderr: Option<Output>,
    pub(super) terminal: Option<Terminal>,
}

/// Where output comes from.
#[derive(Debug)]
pub(super) enum Output {
    /// Known to the runtime only while it is pumped: most commands are over before that is worth its price.
    Pipe(OwnedFd),
    Terminal(Arc<Side>),
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Terminal(end) => end.as_fd(),
        }
    }
}

/// Streams that are ours once the command runs.
#[derive(Debug)]
pub(super) enum Prepared {
    Pipes(Streams),
    Terminal(Promise),
}

impl Prepared {
    /// Makes pipes; also gives what belongs to the order: the command's ends in the order of their numbers.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(super) fn pipes(with_stdin: bool) -> io::Result<(Self, Vec<OwnedFd>)> {
        let (stdin, child_stdin) = if with_stdin {
            let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
            (Some(Arc::new(Side::to_write(ours)?)), theirs)
        } else {
            (None, OpenOptions::new().read(true).open("/dev/null")?.into())
        };
        let (stdout, child_stdout) = output()?;
        let (stderr, child_stderr) = output()?;
        let streams = Streams { stdin, stdout, stderr: Some(stderr), terminal: None };
        Ok((Self::Pipes(streams), vec![child_stdin, child_stdout, child_stderr]))
    }

    /// Prepares for a terminal, which the spawner makes; also gives what belongs to the order.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(super) fn terminal() -> io::Result<(Self, Vec<OwnedFd>)> {
        let (promise, theirs) = Promise::new()?;
        Ok((Self::Terminal(promise), vec![theirs]))
    }

    /// The streams; to be called when the command runs.
    ///
    /// # Errors
    /// The terminal did not come.
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
    /// Takes what the command's last words are: what is on its way now. `waits`: not faster than an output that
    /// waits for its readers lets us.
    pub(super) async fn drain(&self, process: &Process, waits: bool) {
        drain(&self.stdout, process, Stream::Stdout, waits).await;
        if let Some(stderr) = &self.stderr {
            drain(stderr, process, Stream::Stderr, waits).await;
        }
    }
}

/// Only our end is made non-blocking: the flag belongs to an end, and commands expect theirs to block.
fn output() -> io::Result<(Output, OwnedFd)> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((Output::Pipe(ours), theirs))
}

/// Reads until all writers have closed. Whoever reads the ring is waited for only if the output waits.
pub(super) async fn pump(from: &Output, process: &Process, stream: Stream) {
    match from {
        Output::Pipe(pipe) => while part(pipe.as_fd(), process, stream).await {},
        Output::Terminal(end) => drop(trickle(&end.0, process, stream, usize::MAX).await),
    }
}

/// A trickle that swells, and the flood that follows. False: nothing more will come.
async fn part(pipe: BorrowedFd<'_>, process: &Process, stream: Stream) -> bool {
    match sys::watch(pipe, Interest::READABLE) {
        Ok(end) => {
            let swells = trickle(&end, process, stream, FLOOD_BYTES).await;
            drop(end);
            swells && flood(pipe, process, stream).await
        }
        // Out of places to watch a pipe: others may give theirs back.
        Err(_) => {
            sleep(UNWATCHED_REST).await;
            empty(pipe, process, stream).await.is_some()
        }
    }
}

/// Takes what comes, when it comes. True: so much has come that it is a flood; false: nothing more will come.
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
                // A pipe that is filled as fast as it is emptied would leave nobody else a turn, least of all its readers.
                if bytes >= LARGE_BYTES {
                    yield_now().await;
                }
            }
        }
    }
    true
}

/// Takes much at a time, and leaves the pipe unwatched meanwhile: to be woken by every write costs both sides more, under
/// gVisor several times more, than to move what was written. True: it has become a trickle; false: nothing more will come.
async fn flood(pipe: BorrowedFd<'_>, process: &Process, stream: Stream) -> bool {
    // A kernel that refuses (its bound for all of a user's pipes) has given a pipe that works.
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
    // Refused where more has come meanwhile: then it is still large, which does no harm.
    let _ = resize(pipe, USUAL_PIPE_BYTES);
    true
}

/// Takes all that is there, in turns with others; how much that was. None: nothing more will come.
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

/// Straight from the kernel, because the runtime may not know yet that there is something. Bounded, because a daemon
/// of the command may go on writing.
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

/// What a look into a pipe has brought.
struct Kept {
    bytes: usize,
    /// There was less than was asked for.
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
