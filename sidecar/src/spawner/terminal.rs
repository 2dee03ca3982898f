//! Makes a terminal for a command. The spawner makes it, because it has to be one of the target's own (`tty`,
//! `/dev/pts`), and hands its master to the sidecar, which reads and writes it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::frame::Size;
use crate::sys;

/// The open must not block, whatever a process of the sandbox has put at the path.
const FLAGS: i32 = libc::O_NOCTTY | libc::O_NONBLOCK;

/// Makes a terminal, sends its master over `socket` and returns the end that the command runs on.
///
/// # Errors
/// The target has no terminals, or they are used up.
pub(super) fn open(size: Size, socket: &OwnedFd) -> io::Result<OwnedFd> {
    let master = open_quickly("/dev/ptmx")?;
    sys::unlock_terminal(master.as_fd())?;
    sys::set_window_size(master.as_fd(), size.columns, size.rows)?;
    let peer = match sys::open_peer(master.as_fd()) {
        Ok(peer) => peer,
        // Some versions of gVisor have no such call.
        Err(_) => blocking(open_quickly(&format!("/dev/pts/{}", sys::terminal_number(master.as_fd())?))?)?,
    };
    let rights = [master.as_raw_fd()];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(b"t")],
        &[ControlMessage::ScmRights(&rights)],
        flags,
        None,
    )?;
    Ok(peer)
}

/// Receives the master that the spawner has sent.
///
/// # Errors
/// No terminal was sent.
pub fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut descriptors = VecDeque::new();
    sys::receive(socket.as_fd(), &mut [0], &mut descriptors)?;
    descriptors.pop_front().ok_or_else(|| io::Error::other("the terminal is missing"))
}

fn open_quickly(path: &str) -> io::Result<File> {
    let named = |err: io::Error| io::Error::other(format!("{path}: {err}"));
    OpenOptions::new().read(true).write(true).custom_flags(FLAGS).open(path).map_err(named)
}

fn blocking(file: File) -> io::Result<OwnedFd> {
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_RDWR))?;
    Ok(file.into())
}
