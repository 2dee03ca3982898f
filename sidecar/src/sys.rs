//! Safe wrappers of system interfaces for which no library has one.

#![allow(
    unsafe_code,
    reason = "fork, descriptor passing, the seccomp call and the environment block are unsafe by nature"
)]

pub mod attributes;

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

/// Descriptors that one message may carry.
const MAX_DESCRIPTORS: usize = 8;
const FIRST_OWN_DESCRIPTOR: libc::c_uint = 3;
/// Larger than one message of a stream, smaller than the tables that grow with the number of commands.
const MMAP_THRESHOLD_BYTES: i32 = 160 << 10;
/// How much freed memory below that size the allocator keeps: streams free as much as they allocate, a message at a
/// time, and memory that was given back is taken again page by page, each at the price of several system calls under
/// gVisor.
const KEPT_BYTES: i32 = 512 << 10;

/// Proof that this process has one thread. Dropped before a runtime starts.
#[derive(Debug)]
pub struct SingleThread {
    /// Makes it neither cloneable nor sendable to another thread.
    _here: PhantomData<*const ()>,
}

impl SingleThread {
    /// Counts the threads.
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

    /// Forks this process. With several threads the child might find locks that are held for ever.
    ///
    /// # Errors
    /// The kernel cannot make a process.
    pub fn fork(&self) -> io::Result<ForkResult> {
        // SAFETY: there is one thread, so the child has the whole state of the parent and may do anything.
        Ok(unsafe { nix::unistd::fork()? })
    }

    /// Closes all descriptors but the standard ones. The parent of this process may have left some open, which every
    /// command would inherit. Only valid right at the start, before this process has opened any itself.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn close_inherited(&self) -> io::Result<()> {
        // SAFETY: no code in this process owns a descriptor from 3 on yet; the caller guarantees that.
        let done =
            unsafe { libc::syscall(libc::SYS_close_range, FIRST_OWN_DESCRIPTOR, libc::c_uint::MAX, 0) };
        Ok(Errno::result(done).map(drop)?)
    }

    /// Overwrites the values of the environment variables that this process was started with (`/proc/self/environ`),
    /// where a credential would stay readable. Later reads of the environment find empty values.
    pub fn scrub_environment(&self) {
        unsafe extern "C" {
            static environ: *const *mut c_char;
        }
        // SAFETY: `environ` is a NULL-terminated list of C strings in writable memory of this process (the kernel put
        // them on the stack). Every write stays inside one string, before its NUL. There is one thread, so no other
        // code reads them meanwhile.
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

/// Receives up to `buffer.len()` bytes without waiting, and appends the descriptors that came with them. 0 means that
/// the peer has closed.
///
/// # Errors
/// `WouldBlock` when no message is there; any other error is the end of the connection.
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
            // SAFETY: the kernel has just made these descriptors for this process; no other code knows their numbers.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    Ok(message.bytes)
}

/// Installs a seccomp filter for this process and all its children. Unlike the libraries' functions it does not set
/// no_new_privs, which would break `sudo` in commands; so it needs `SYS_ADMIN`.
///
/// # Errors
/// The errno of the call.
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

/// Reaps one ended child, if there is one. The libraries' functions are not used: they do not know real-time signals
/// and would lose a process that was ended by one.
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

/// Has the kernel send SIGCHLD for a child that is stopped too, which runtimes do not ask for. Called once a handler is
/// installed.
///
/// # Errors
/// The kernel refuses.
pub fn hear_of_stops() -> io::Result<()> {
    // SAFETY: both calls read or write one `sigaction`; the second installs the handler that is there already, with one
    // flag less.
    unsafe {
        let mut handler = std::mem::zeroed::<libc::sigaction>();
        Errno::result(libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut handler))?;
        handler.sa_flags &= !libc::SA_NOCLDSTOP;
        Errno::result(libc::sigaction(libc::SIGCHLD, &raw const handler, std::ptr::null_mut()))?;
    }
    Ok(())
}

/// A type that keeps its descriptor open until it is dropped.
pub trait Held: AsRawFd {}

impl Held for OwnedFd {}
impl Held for UnixStream {}
impl Held for BorrowedFd<'_> {}

/// Has the runtime watch a descriptor for `interest`, and for nothing else.
///
/// # Errors
/// The descriptor is of a kind that cannot be watched, or this process has reached the kernel's limit of watches.
pub fn watch<T: Held>(held: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: the type keeps the same descriptor open until it is dropped.
    unsafe { AsyncFd::register_with_interest(held, interest) }.map_err(io::Error::from)
}

/// Unlocks the other end of a terminal.
///
/// # Errors
/// `master` is not a terminal's master.
pub fn unlock_terminal(master: BorrowedFd<'_>) -> io::Result<()> {
    let unlocked: libc::c_int = 0;
    // SAFETY: the kernel reads one integer.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    Ok(Errno::result(done).map(drop)?)
}

/// The number of a terminal in its `/dev/pts`.
///
/// # Errors
/// `master` is not a terminal's master.
pub fn terminal_number(master: BorrowedFd<'_>) -> io::Result<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: the kernel writes one integer.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) };
    Ok(Errno::result(done).map(|_| number)?)
}

/// Opens the other end of a terminal, whatever lies at its path.
///
/// # Errors
/// `master` is not a terminal's master, or the kernel has no such call.
pub fn open_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes integers only; no other code owns the descriptor that is returned.
    unsafe {
        let peer = Errno::result(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
        Ok(OwnedFd::from_raw_fd(peer))
    }
}

/// Sets the size of a terminal's window.
///
/// # Errors
/// `terminal` is not a terminal.
pub fn set_window_size(terminal: BorrowedFd<'_>, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one `winsize`.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    Ok(Errno::result(done).map(drop)?)
}

/// Sends SIGINT, SIGQUIT or SIGTSTP to the foreground processes of a terminal.
///
/// # Errors
/// `master` is not a terminal's master, the signal is another one, or the kernel has no such call.
pub fn signal_foreground(master: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    const TIOCSIG: u64 = 0x4004_5436;
    // SAFETY: takes integers only.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), TIOCSIG as _, number) };
    Ok(Errno::result(done).map(drop)?)
}

/// Bytes of a pipe that nobody has read.
///
/// # Errors
/// `pipe` is not a pipe.
pub fn unread_bytes(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one integer.
    let done = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    Errno::result(done)?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Microseconds on the monotonic clock, which is one for all processes of the sandbox. Usable between clone and execve.
pub fn monotonic_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, which writes the structure and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
}

/// Sends any signal, also a real-time one. A process that is gone is not an error.
pub fn signal(pid: i32, number: i32) {
    if pid > 0 {
        // SAFETY: takes two integers. The caller chooses the process; 0 and below (groups) are excluded.
        unsafe { libc::kill(pid, number) };
    }
}

/// Sends any signal to all processes of a group at once. A group that is gone is not an error.
pub fn signal_group(leader: i32, number: i32) {
    if leader > 1 {
        // SAFETY: takes two integers. The caller chooses the group; this process's own group and "all processes" are
        // excluded.
        unsafe { libc::kill(-leader, number) };
    }
}

/// Kills every other process of this PID namespace at once; a fork under way does not escape. Does nothing in a process
/// that is not the namespace's init: there "every process" would be those of somebody else.
pub fn kill_all() {
    if std::process::id() == 1 {
        // SAFETY: takes two integers.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}

/// Gives every signal its default disposition. Exec does not do that for ignored ones: Rust's runtime ignores SIGPIPE,
/// and the parent of this process may have ignored others.
pub fn default_signals() {
    // The kernel's `struct sigaction` of 64-bit machines: handler SIG_DFL, no flags, no restorer, empty mask.
    let default = [0_u64; 4];
    let mask_bytes = size_of::<u64>();
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the kernel reads `default` and runs no handler. The C library's function is not used, since it
        // refuses the two numbers that it uses itself. SIGKILL and SIGSTOP return an error and stay as they are.
        unsafe {
            let old = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), old, mask_bytes);
        }
    }
}

/// Makes the allocator give large buffers (output of commands) back to the kernel as soon as they are freed. By default
/// it raises its threshold with each of them and keeps them.
pub fn return_memory_early() {
    // SAFETY: sets two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Makes the allocator keep `kept_bytes` of what is freed in blocks below `block_bytes`, until [`give_memory_back`]: for
/// a process that takes the same amount again at once, each page at the price of system calls under gVisor.
pub fn keep_memory(block_bytes: usize, kept_bytes: usize) {
    let most = |bytes| i32::try_from(bytes).unwrap_or(i32::MAX);
    // SAFETY: sets two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, most(block_bytes));
        libc::mallopt(libc::M_TRIM_THRESHOLD, most(kept_bytes));
    }
}

/// Gives all freed memory back to the kernel.
pub fn give_memory_back() {
    // SAFETY: the allocator's own, callable at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Blocks the whole process; for use where there is no runtime.
pub fn pause(duration: Duration) {
    let timeout = PollTimeout::try_from(duration).unwrap_or(PollTimeout::MAX);
    // Waking up early does no harm: every caller checks its condition again.
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
