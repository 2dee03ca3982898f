use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::write;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys;

/// The sidecar's end of a pipe, or of a terminal.
#[derive(Debug)]
pub(super) struct PipeEnd(pub(super) AsyncFd<OwnedFd>);

impl PipeEnd {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        // The flag belongs to this end alone; commands expect theirs to block.
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
    /// Nothing reads the other end any more.
    pub(super) async fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |fd| Ok(write(fd, data)?)).await
    }
}

impl AsFd for PipeEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
