//! The sidecar's side of a command's terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::sys::termios::{LocalFlags, SpecialCharacterIndices, tcgetattr};
use nix::unistd::write;

use super::pipe_end::PipeEnd;
use crate::spawner::frame::Size;
use crate::spawner::terminal;
use crate::sys;

/// The signals that the keys of a terminal send.
const KEYS: [(i32, SpecialCharacterIndices); 3] = [
    (libc::SIGINT, SpecialCharacterIndices::VINTR),
    (libc::SIGQUIT, SpecialCharacterIndices::VQUIT),
    (libc::SIGTSTP, SpecialCharacterIndices::VSUSP),
];

/// The terminal that the spawner will send when the command runs.
#[derive(Debug)]
pub(super) struct Promise {
    socket: UnixStream,
}

/// The master of a command's terminal. The terminal hangs up when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Terminal {
    pub(super) end: Arc<PipeEnd>,
}

impl Promise {
    /// Makes the promise, and the descriptor that goes to the spawner with the order.
    ///
    /// # Errors
    /// This process is out of descriptors.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (socket, theirs) = UnixStream::pair()?;
        Ok((Self { socket }, theirs.into()))
    }

    /// Takes the terminal; to be called once the command runs.
    ///
    /// # Errors
    /// It did not come: this process is out of descriptors.
    pub(super) fn keep(self) -> io::Result<Terminal> {
        let master = terminal::receive(&self.socket)?;
        Ok(Terminal { end: Arc::new(PipeEnd::both_ways(master)?) })
    }
}

impl Terminal {
    /// Sets the size of the window; the kernel informs the foreground processes with SIGWINCH.
    ///
    /// # Errors
    /// The command has closed it.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        sys::set_window_size(self.end.as_fd(), size.columns, size.rows)
    }

    /// Sends the signal to the foreground processes as its key would. False: the signal has no key, or could not be
    /// sent.
    pub fn signal(&self, signal: u32) -> bool {
        let key = KEYS.iter().find(|(number, _)| number.cast_unsigned() == signal);
        key.is_some_and(|(_, key)| {
            sys::signal_foreground(self.end.as_fd(), signal).is_ok() || self.press(*key).is_some()
        })
    }

    /// Types the key, for a kernel (gVisor) that has no call to send the signal but handles the keys.
    fn press(&self, key: SpecialCharacterIndices) -> Option<()> {
        let settings = tcgetattr(self.end.as_fd()).ok()?;
        let character = settings.control_chars[key as usize];
        let means_signal =
            settings.local_flags.contains(LocalFlags::ISIG) && character != libc::_POSIX_VDISABLE;
        (means_signal && write(self.end.as_fd(), &[character]).is_ok()).then_some(())
    }

    /// The character that ends the input; none when the command has disabled it.
    pub(super) fn end_of_input(&self) -> Option<u8> {
        let settings = tcgetattr(self.end.as_fd()).ok()?;
        let character = settings.control_chars[SpecialCharacterIndices::VEOF as usize];
        (character != libc::_POSIX_VDISABLE).then_some(character)
    }
}
