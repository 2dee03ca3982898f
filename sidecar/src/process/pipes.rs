//! The pipes of a command: made here, one end given away, the other read and written without ever blocking.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, read};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::coop::consume_budget;

use super::{Process, Stream};

/// What a pipe holds by default; read at once, and on the stack.
const CHUNK_BYTES: usize = 64 << 10;
/// The most that a pipe can be made to hold.
const MAX_PIPE_BYTES: usize = 1 << 20;

/// Our ends of a command's streams.
#[derive(Debug)]
pub(super) struct Pipes {
    /// None: the command reads the null device.
    pub(super) stdin: Option<Sender>,
    /// Known to the runtime only while `pump` reads it: most commands are over before that is worth its price.
    pub(super) stdout: OwnedFd,
    /// As `stdout`.
    pub(super) stderr: OwnedFd,
}

/// Makes the pipes; also gives the command's ends, in the order of their numbers.
///
/// # Errors
/// Out of descriptors.
pub(super) fn open(with_stdin: bool) -> io::Result<(Pipes, Vec<OwnedFd>)> {
    let (stdin, child_stdin) = if with_stdin {
        let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
        (Some(Sender::from_owned_fd(ours)?), theirs)
    } else {
        (None, OpenOptions::new().read(true).open("/dev/null")?.into())
    };
    let (stdout, child_stdout) = output()?;
    let (stderr, child_stderr) = output()?;
    Ok((Pipes { stdin, stdout, stderr }, vec![child_stdin, child_stdout, child_stderr]))
}

/// Only our end is made non-blocking: the flag belongs to an end, and commands expect theirs to block.
fn output() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((ours, theirs))
}

/// Reads until all writers have closed. Whoever reads the ring is never waited for.
///
/// # Errors
/// Out of descriptors, or of places to watch them.
pub(super) async fn pump(pipe: &OwnedFd, process: &Process, stream: Stream) -> io::Result<()> {
    let pipe = Receiver::from_owned_fd_unchecked(pipe.try_clone()?)?;
    loop {
        pipe.readable().await?;
        // A pipe that is filled as fast as it is emptied is always readable: without this nobody else would get a turn.
        consume_budget().await;
        // On the stack only between two waits, so that a thousand idle commands hold no such buffer.
        let mut chunk = [0; CHUNK_BYTES];
        match pipe.try_read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => keep(process, stream, &chunk[..count]),
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(err) => return Err(err),
        }
    }
}

/// Takes what the pipe holds now. Straight from the kernel, because the runtime may not know yet that there is
/// something. Bounded, because a daemon of the command may go on writing.
pub(super) fn drain(pipe: &OwnedFd, process: &Process, stream: Stream) {
    let mut chunk = [0; CHUNK_BYTES];
    let mut taken = 0;
    while taken < MAX_PIPE_BYTES {
        match read(pipe, &mut chunk) {
            Ok(count) if count > 0 => {
                keep(process, stream, &chunk[..count]);
                taken += count;
            }
            _ => return,
        }
    }
}

fn keep(process: &Process, stream: Stream, data: &[u8]) {
    process.output(stream).push(data);
    process.activity.send_replace(());
}
