//! System interfaces that no library has a safe face for, each behind one.

#![allow(
    unsafe_code,
    reason = "fork, descriptor passing, the seccomp call and the environment block are unsafe by nature"
)]

use std::collections::VecDeque;
use std::ffi::c_char;
use std::io::{self, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::ForkResult;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Descriptors that one message may bring.
const MAX_DESCRIPTORS: usize = 8;
const FIRST_OWN_DESCRIPTOR: libc::c_uint = 3;
/// Above a message of a stream, below the tables that grow with the number of commands.
const MMAP_THRESHOLD_BYTES: i32 = 160 << 10;
/// What is kept of what is freed below it: streams free as much as they take, a message at a time, and memory that was
/// given back is taken again a page at a time, each at the price of several system calls under gVisor.
const KEPT_BYTES: i32 = 512 << 10;

/// The word of whoever holds it that this process has one thread. Given up before a runtime starts.
#[derive(Debug)]
pub struct SingleThread {
    /// Neither copied nor sent anywhere else.
    _here: PhantomData<*const ()>,
}

impl SingleThread {
    /// Looks and vouches for it.
    ///
    /// # Errors
    /// There are several threads, or they cannot be counted.
    pub fn check() -> io::Result<Self> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            return Ok(Self { _here: PhantomData });
        }
        Err(io::Error::other(format!("this process has {threads} threads where only one is safe")))
    }

    /// Forks this process. A child of a process with several threads could find locks held for ever.
    ///
    /// # Errors
    /// The kernel cannot make a process.
    pub fn fork(&self) -> io::Result<ForkResult> {
        // SAFETY: there is one thread, so the child has the whole state of the parent and may do anything.
        Ok(unsafe { nix::unistd::fork()? })
    }

    /// Closes all descriptors but the standard ones. Whoever started this process may have left some open, which
    /// would then be open in every command. Only right at the start, before this process has opened any itself.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn close_inherited(&self) -> io::Result<()> {
        // SAFETY: nothing in this process owns a descriptor from 3 on yet: that is what the caller vouches for.
        let done =
            unsafe { libc::syscall(libc::SYS_close_range, FIRST_OWN_DESCRIPTOR, libc::c_uint::MAX, 0) };
        Ok(Errno::result(done).map(drop)?)
    }

    /// Overwrites the values that this process was started with (`/proc/self/environ`), where a credential would
    /// stay readable. Every later look at the environment finds empty values.
    pub fn scrub_environment(&self) {
        unsafe extern "C" {
            static environ: *const *mut c_char;
        }
        // SAFETY: `environ` is a NULL-terminated list of C strings in writable memory of this process (the kernel
        // put them on the stack). Every write stays inside one string, before its NUL. One thread, so nobody reads
        // along.
        unsafe {
            let mut entry = environ;
            while !entry.is_null() && !(*entry).is_null() {
                let length = libc::strlen(*entry);
                let value = libc::strchr(*entry, i32::from(b'='));
                if !value.is_null() {
                    let name_bytes = value.offset_from(*entry).unsigned_abs() + 1;
                    std::ptr::write_bytes((*entry).add(name_bytes), 0, length - name_bytes);
                }
                entry = entry.add(1);
            }
        }
    }
}

/// Receives up to `buffer.len()` bytes without waiting, and appends the descriptors that came along. 0 means that
/// the peer has closed.
///
/// # Errors
/// `WouldBlock` when nothing is there; anything else is the end of the connection.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            // SAFETY: the kernel has just made these descriptors for us; nobody else knows their numbers.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    Ok(message.bytes)
}

/// Installs a filter for this process and all its children. Unlike the libraries' calls it leaves no_new_privs
/// alone, which would break `sudo` in commands; so it needs SYS_ADMIN.
///
/// # Errors
/// The errno.
pub fn install_filter(program: &[libc::sock_filter]) -> nix::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `length` instructions from `program`, which lives through the call.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&filter))
    };
    Errno::result(done).map(drop)
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It called exit with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// Reaps one ended child, if there is one. Not the libraries' call: those know no real-time signals and would lose
/// a process that was ended by one.
pub fn reap() -> Option<(i32, Ended)> {
    let mut status = 0;
    // SAFETY: the kernel writes one integer to `status`.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signalled(libc::WTERMSIG(status))
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    };
    (pid > 0).then_some((pid, ended))
}

/// What holds a descriptor open for as long as it is there itself.
pub trait Held: AsRawFd {}

impl Held for OwnedFd {}
impl Held for UnixStream {}
impl Held for BorrowedFd<'_> {}

/// Has the runtime watch a descriptor for `interest`, and for nothing else.
///
/// # Errors
/// It is of a kind that cannot be waited for, or the kernel watches no more of them for this process.
pub fn watch<T: Held>(held: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: a descriptor that is held is open, and the same one, until it is dropped.
    unsafe { AsyncFd::register_with_interest(held, interest) }.map_err(io::Error::from)
}

/// Unlocks a terminal's other end.
///
/// # Errors
/// `master` is none.
pub fn unlock_terminal(master: BorrowedFd<'_>) -> io::Result<()> {
    let unlocked: libc::c_int = 0;
    // SAFETY: the kernel reads one integer.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    Ok(Errno::result(done).map(drop)?)
}

/// The number of a terminal in its `/dev/pts`.
///
/// # Errors
/// `master` is none.
pub fn terminal_number(master: BorrowedFd<'_>) -> io::Result<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: the kernel writes one integer.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) };
    Ok(Errno::result(done).map(|_| number)?)
}

/// The other end of a terminal, whatever lies at its path.
///
/// # Errors
/// `master` is none, or the kernel has no such call.
pub fn open_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes integers only; the descriptor that comes back is nobody else's.
    unsafe {
        let peer = Errno::result(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
        Ok(OwnedFd::from_raw_fd(peer))
    }
}

/// Sets the size of a terminal's window.
///
/// # Errors
/// `terminal` is none.
pub fn set_window_size(terminal: BorrowedFd<'_>, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one `winsize`.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    Ok(Errno::result(done).map(drop)?)
}

/// Sends SIGINT, SIGQUIT or SIGTSTP to the foreground processes of a terminal.
///
/// # Errors
/// `master` is none, the signal is another one, or the kernel has no such call.
pub fn signal_foreground(master: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    const TIOCSIG: u64 = 0x4004_5436;
    // SAFETY: takes integers only.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), TIOCSIG as _, number) };
    Ok(Errno::result(done).map(drop)?)
}

/// Sends any signal, also a real-time one. A process that is gone is no error worth having.
pub fn signal(pid: i32, number: i32) {
    if pid > 0 {
        // SAFETY: takes two integers; whom it may hit is the caller's business, 0 and below (groups) are excluded.
        unsafe { libc::kill(pid, number) };
    }
}

/// Sends any signal to all of a process group at once. A group that is gone is no error worth having.
pub fn signal_group(leader: i32, number: i32) {
    if leader > 1 {
        // SAFETY: takes two integers; whom it may hit is the caller's business, the own group and all are excluded.
        unsafe { libc::kill(-leader, number) };
    }
}

/// Gives every signal its default disposition, which exec would not do for ignored ones: Rust's runtime ignores
/// SIGPIPE, and whoever started this process may have ignored others.
pub fn default_signals() {
    // The kernel's `struct sigaction` of 64-bit machines: handler SIG_DFL, no flags, no restorer, empty mask.
    let default = [0_u64; 4];
    let mask_bytes = size_of::<u64>();
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the kernel reads `default` and runs no code of ours. Not the C library's call, which refuses the
        // two numbers that it uses itself. SIGKILL and SIGSTOP answer with an error and stay as they are.
        unsafe {
            let old = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), old, mask_bytes);
        }
    }
}

/// Has large buffers (output of commands) given back to the kernel as soon as they are freed. Left alone, the
/// allocator raises its threshold with every one and keeps them.
pub fn return_memory_early() {
    // SAFETY: sets two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Blocks the whole process: for use where there is no runtime.
pub fn pause(duration: Duration) {
    let timeout = PollTimeout::try_from(duration).unwrap_or(PollTimeout::MAX);
    // Waking up early is no harm: every caller looks again.
    let _ = poll(&mut [], timeout);
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::os::fd::AsFd;

    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    #[test]
    fn descriptors_travel_with_their_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let rights = [writer.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&rights)];
        sendmsg::<()>(ours.as_raw_fd(), &[IoSlice::new(b"hi")], &control, MsgFlags::empty(), None).unwrap();
        drop(writer);

        let (mut buffer, mut descriptors) = ([0; 8], VecDeque::new());
        assert_eq!(receive(theirs.as_fd(), &mut buffer, &mut descriptors).unwrap(), 2);
        let mut received = io::PipeWriter::from(descriptors.pop_front().unwrap());
        received.write_all(b"through the pipe").unwrap();
        drop(received);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the pipe");
        let again = receive(theirs.as_fd(), &mut buffer, &mut descriptors).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_process_with_threads_is_not_forked() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || receiver.recv());
        assert!(SingleThread::check().is_err());
        drop(sender);
        assert!(other.join().unwrap().is_err());
    }
}
