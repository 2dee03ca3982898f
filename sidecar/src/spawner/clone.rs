//! Starts a process without copying memory: clone(CLONE_VM), set up the child, execve.
//!
//! The child shares the spawner's memory until execve, and the spawner only waits meanwhile. So no page table is
//! copied, and the child can read what was prepared for it. In return it must not change that memory: it allocates
//! nothing, takes no lock, and reports through one pair of numbers. What is the same for all commands (bounding set,
//! inheritable capabilities, signal dispositions, the seccomp filter) the spawner has set on itself once, and children
//! inherit it.
//!
//! CLONE_VFORK is not used, because it waits without a timeout: a child that another command stops (SIGSTOP cannot be
//! blocked), or whose program another command holds with a file lease, would block the sandbox's init for ever.

#![allow(
    unsafe_code,
    reason = "no library has a safe interface for the system calls between clone and execve"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid};
use syscalls::Sysno;

use super::stall::{self, Waited};
use crate::sys;
use crate::target::limits::Limit;

/// Enough for `child`, whose frames are small and which makes only system calls.
const STACK_BYTES: usize = 64 << 10;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const EXIT_BEFORE_EXEC: c_int = 127;
/// The first descriptor after the standard ones.
const FIRST_OTHER_DESCRIPTOR: c_long = 3;
/// Pause between two checks of a child that was killed.
const REAP_EVERY: Duration = Duration::from_secs(3);

/// A NULL-terminated list of C strings.
#[derive(Debug)]
pub struct CStrings {
    #[cfg_attr(not(test), expect(dead_code, reason = "what the pointers point to"))]
    owned: Vec<CString>,
    pointers: Vec<*const c_char>,
    bytes: usize,
}

impl CStrings {
    /// Takes the strings. The pointers stay valid when the list is moved, since that moves no text.
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        let bytes = strings.iter().map(|text| text.count_bytes() + 1).sum();
        Self { owned: strings, pointers, bytes }
    }

    /// Bytes of all strings together, each with its NUL.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The strings in order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.owned.iter().map(CString::as_c_str)
    }
}

/// One execve to attempt.
#[derive(Debug)]
pub struct Attempt {
    /// The file.
    pub path: CString,
    /// Index of the argument list to give it.
    pub list: usize,
}

/// The properties that the child gives itself.
#[derive(Debug)]
pub struct Child<'a> {
    /// Standard input, output and error; none of them may be one of the numbers 0 to 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input is a terminal, which becomes the controlling one.
    pub terminal: bool,
    /// Working directory; the spawner's is `/`.
    pub cwd: &'a CStr,
    /// File mode creation mask; none: the spawner's.
    pub umask: Option<u32>,
    /// Whether there is an OOM killer, so that `oom_score_adj` is set.
    pub oom_killer: bool,
    /// Resource limits, none above what the spawner may set.
    pub limits: &'a [Limit],
    /// User id.
    pub uid: u32,
    /// Group id and supplementary groups; none: the same as the spawner's.
    pub groups: Option<(u32, &'a [u32])>,
    /// Permitted capabilities of root; another user has none.
    pub permitted: u64,
    /// Inheritable capabilities of root.
    pub inheritable: u64,
    /// Whether exec may not grant privileges (`no_new_privs`).
    pub no_new_privs: bool,
    /// Environment.
    pub environ: &'a CStrings,
    /// Argument lists.
    pub arguments: &'a [CStrings],
    /// The programs to try; the first success wins.
    pub attempts: &'a [Attempt],
}

/// The stages of a start, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No process could be made.
    Clone,
    /// Session and descriptors.
    Stdio,
    /// Setting `oom_score_adj`, by which the kernel picks this process when memory runs out.
    OomScore,
    /// Resource limits.
    Limits,
    /// Working directory.
    Cwd,
    /// User and groups.
    User,
    /// Capabilities.
    Capabilities,
    /// Executing the program.
    Exec,
}

const STAGES: [Stage; 8] = [
    Stage::Clone,
    Stage::Stdio,
    Stage::OomScore,
    Stage::Limits,
    Stage::Cwd,
    Stage::User,
    Stage::Capabilities,
    Stage::Exec,
];

/// Where a start failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The stage in which it failed.
    pub stage: Stage,
    /// The kernel's error.
    pub errno: Errno,
}

/// The stack of children, used for one at a time.
pub struct Stack(Box<[u8]>);

impl Stack {
    /// Allocates it.
    pub fn new() -> Self {
        Self(vec![0; STACK_BYTES].into_boxed_slice())
    }

    /// The address at which the stack begins: it grows down from a 16-byte boundary, as the ABI demands.
    fn top(&mut self) -> *mut c_void {
        let end = self.0.as_mut_ptr_range().end;
        end.wrapping_sub(end.addr() % 16).cast()
    }
}

impl Default for Stack {
    fn default() -> Self {
        Self::new()
    }
}

/// A process that runs.
#[derive(Debug, Clone, Copy)]
pub struct Started {
    /// Its id.
    pub pid: Pid,
    /// When it was about to execute its program, on the monotonic clock.
    pub began_us: u64,
}

struct Shared<'a> {
    plan: &'a Child<'a>,
    /// Set by the child: this process may hear of the start long after the program has begun.
    began_us: AtomicU64,
    errno: AtomicI32,
    stage: AtomicU32,
}

/// Starts a process. Returns when it runs its program or has failed to, at the latest when `stall` gives it up. The
/// caller must have all signals blocked, since a handler would otherwise run in the child, on the caller's memory.
///
/// # Errors
/// The stage that failed. `ETIMEDOUT`: the child was held in that stage; `ETIME`: it got no processor or disk time. The
/// child, if there was one, is reaped.
pub fn start(stack: &mut Stack, plan: &Child<'_>) -> Result<Started, Failure> {
    let shared = Shared {
        plan,
        began_us: AtomicU64::new(0),
        errno: AtomicI32::new(0),
        stage: AtomicU32::new(Stage::Clone as u32),
    };
    let argument = ptr::from_ref(&shared).cast_mut().cast();
    let unstarted = |errno| Failure { stage: Stage::Clone, errno };
    let (borrowed, lent) = io::pipe().map_err(|_| unstarted(Errno::last()))?;
    // SAFETY: the stack is ours alone and larger than `child` needs. Below, this function does not return before the
    // child has given the memory back, so `shared`, `plan` and the stack outlive the child's use of them. Until then
    // this thread only waits, and no other one exists that could hold a lock or look at what the child uses.
    let pid = unsafe { libc::clone(child, stack.top(), libc::CLONE_VM | libc::SIGCHLD, argument) };
    if pid < 0 {
        return Err(unstarted(Errno::last()));
    }
    // After this only the child holds this end, and the kernel closes it once the child has left this memory.
    drop(lent);
    let waited = stall::given_back(&borrowed, pid);
    if waited != Waited::Closed {
        sys::signal(pid, libc::SIGKILL);
        while !stall::closed_within(&borrowed, REAP_EVERY) {}
    }
    let pid = Pid::from_raw(pid);
    let errno = match shared.errno.load(Ordering::Relaxed) {
        0 if waited == Waited::Closed => {
            return Ok(Started { pid, began_us: shared.began_us.load(Ordering::Relaxed) });
        }
        0 => waited.errno(),
        errno => Errno::from_raw(errno),
    };
    // Reaped here, so that its end does not look like that of a command.
    let _ = nix::sys::wait::waitpid(pid, None);
    Err(Failure { stage: stage(shared.stage.load(Ordering::Relaxed)), errno })
}

/// Starts a process that executes no program: it calls `work` and then ends. It gets everything that a command gets
/// except the environment variables, and its signals stay blocked. Its memory is a copy of the caller's, which is
/// small.
///
/// # Errors
/// As for [`start`].
pub fn fork(plan: &Child<'_>, work: extern "C" fn()) -> Result<Started, Failure> {
    let unstarted = |errno| Failure { stage: Stage::Clone, errno };
    let (mut reports, report) = io::pipe().map_err(|_| unstarted(Errno::last()))?;
    // SAFETY: the spawner has one thread, so the child has its whole state and may do anything.
    let child = match unsafe { nix::unistd::fork() }.map_err(unstarted)? {
        ForkResult::Child => forked(plan, report, work),
        ForkResult::Parent { child } => child,
    };
    drop(report);
    let waited = stall::given_back(&reports, child.as_raw());
    if waited != Waited::Closed {
        sys::signal(child.as_raw(), libc::SIGKILL);
    }
    // The child has written its failure by now, or has ended.
    let mut said = [0; 2];
    let failure = match reports.read_exact(&mut said) {
        Ok(()) => Failure { stage: stage(said[0].into()), errno: Errno::from_raw(said[1].into()) },
        Err(_) if waited == Waited::Closed => {
            return Ok(Started { pid: child, began_us: sys::monotonic_us() });
        }
        Err(_) => Failure { stage: Stage::Exec, errno: waited.errno() },
    };
    let _ = nix::sys::wait::waitpid(child, None);
    Err(failure)
}

/// The child of `fork`. Its end of the pipe closes with all other descriptors once it is set up.
fn forked(plan: &Child<'_>, mut report: PipeWriter, work: extern "C" fn()) -> ! {
    let reached = AtomicU32::new(Stage::Clone as u32);
    let done = take_on(plan, &reached)
        .and_then(|()| call(Sysno::close_range, [FIRST_OTHER_DESCRIPTOR, libc::c_uint::MAX.into(), 0]));
    if let Err(errno) = done {
        // Both numbers are small. A failed write does not matter: the parent is gone then.
        let said = [reached.load(Ordering::Relaxed) as u8, u8::try_from(errno).unwrap_or(0)];
        let _ = report.write_all(&said);
        std::process::exit(EXIT_BEFORE_EXEC);
    }
    work();
    std::process::exit(0)
}

fn stage(number: u32) -> Stage {
    STAGES.get(number as usize).copied().unwrap_or(Stage::Exec)
}

extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `start` passes a pointer to a `Shared` that lives until this function has ended or exec'd.
    let shared = unsafe { &*argument.cast_const().cast::<Shared<'_>>() };
    // On success execve does not return, so what comes back is the errno.
    let Err(errno) = become_command(shared) else {
        return EXIT_BEFORE_EXEC;
    };
    shared.errno.store(errno, Ordering::Relaxed);
    EXIT_BEFORE_EXEC
}

fn become_command(shared: &Shared<'_>) -> Result<(), i32> {
    take_on(shared.plan, &shared.stage)?;
    unblock_signals()?;
    shared.stage.store(Stage::Exec as u32, Ordering::Relaxed);
    shared.began_us.store(sys::monotonic_us(), Ordering::Relaxed);
    exec(shared.plan)
}

/// Sets up everything of a command but its program. Signals stay blocked.
fn take_on(plan: &Child<'_>, stage: &AtomicU32) -> Result<(), i32> {
    let enter = |next: Stage| stage.store(next as u32, Ordering::Relaxed);
    enter(Stage::Stdio);
    call(Sysno::setsid, [0, 0, 0])?;
    for (number, from) in (0..).zip(plan.stdio) {
        // A duplicate is not close-on-exec; the original, like every other descriptor of the spawner, is.
        call(Sysno::dup3, [from.as_raw_fd().into(), number, 0])?;
    }
    if plan.terminal {
        call(Sysno::ioctl, [0, libc::TIOCSCTTY as c_long, 0])?;
    }
    enter(Stage::OomScore);
    if plan.oom_killer {
        prefer_for_oom()?;
    }
    enter(Stage::Limits);
    plan.limits.iter().try_for_each(set_limit)?;
    if let Some(umask) = plan.umask {
        call(Sysno::umask, [umask.into(), 0, 0])?;
    }
    enter(Stage::Cwd);
    if plan.cwd != c"/" {
        call(Sysno::chdir, [plan.cwd.as_ptr() as c_long, 0, 0])?;
    }
    enter(Stage::User);
    if let Some((gid, groups)) = plan.groups {
        call(Sysno::setgroups, [groups.len() as c_long, groups.as_ptr() as c_long, 0])?;
        call(Sysno::setresgid, [gid.into(); 3])?;
    }
    call(Sysno::setresuid, [plan.uid.into(); 3])?;
    enter(Stage::Capabilities);
    if plan.uid == 0 {
        set_capabilities(plan.permitted, plan.inheritable)?;
    }
    if plan.no_new_privs {
        prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0])?;
    }
    Ok(())
}

/// Tries all paths as execvp does: continues when the file is missing or forbidden, and in the end reports "forbidden"
/// rather than "missing". Checks first whether the file exists: under gVisor a failed execve costs more than that.
fn exec(plan: &Child<'_>) -> Result<(), i32> {
    let mut outcome = libc::ENOENT;
    for attempt in plan.attempts {
        let Some(arguments) = plan.arguments.get(attempt.list) else {
            continue;
        };
        let [path, argv, envp] = [
            attempt.path.as_ptr() as c_long,
            arguments.pointers.as_ptr() as c_long,
            plan.environ.pointers.as_ptr() as c_long,
        ];
        if plan.attempts.len() > 1 && is_missing(path) {
            continue;
        }
        match call(Sysno::execve, [path, argv, envp]) {
            Err(libc::ENOENT | libc::ENOTDIR) => {}
            Err(libc::EACCES) => outcome = libc::EACCES,
            Err(other) => return Err(other),
            Ok(_) => return Ok(()),
        }
    }
    Err(outcome)
}

fn is_missing(path: c_long) -> bool {
    let found = call(Sysno::faccessat, [libc::AT_FDCWD.into(), path, libc::F_OK.into()]);
    matches!(found, Err(libc::ENOENT | libc::ENOTDIR))
}

/// Raising its own score needs no privilege.
fn prefer_for_oom() -> Result<(), i32> {
    let path = c"/proc/self/oom_score_adj".as_ptr() as c_long;
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let fd = call(Sysno::openat, [libc::AT_FDCWD.into(), path, flags.into()])?;
    let score = c"1000";
    let written = call(Sysno::write, [fd, score.as_ptr() as c_long, 4]);
    call(Sysno::close, [fd, 0, 0])?;
    written.map(drop)
}

fn set_limit(limit: &Limit) -> Result<(), i32> {
    let value = libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard };
    // The old value is not requested.
    call(Sysno::prlimit64, [0, limit.resource.into(), ptr::from_ref(&value) as c_long, 0]).map(drop)
}

/// Sets the permitted and effective sets to `permitted`. A raw system call, since the C library has no `capset`.
///
/// # Errors
/// The errno of the call.
pub fn set_capabilities(permitted: u64, inheritable: u64) -> Result<(), i32> {
    let header = [CAPABILITY_VERSION_3, 0];
    // Effective, permitted, inheritable: first the lower 32 bits of each, then the upper ones.
    let half = |shift: u32| [permitted, permitted, inheritable].map(|bits| (bits >> shift) as u32);
    let data = [half(0), half(32)];
    call(Sysno::capset, [header.as_ptr() as c_long, data.as_ptr() as c_long, 0]).map(drop)
}

/// One `prctl` with integer arguments.
///
/// # Errors
/// The errno of the call.
pub fn prctl(option: c_int, arguments: [c_long; 2]) -> Result<(), i32> {
    let [first, second] = arguments;
    call(Sysno::prctl, [option.into(), first, second, 0, 0]).map(drop)
}

fn unblock_signals() -> Result<(), i32> {
    let none = [0_u64; 1];
    // The kernel reads the 8 bytes of `none`; the old mask is not requested.
    let arguments = [libc::SIG_SETMASK.into(), none.as_ptr() as c_long, 0, size_of_val(&none) as c_long];
    call(Sysno::rt_sigprocmask, arguments).map(drop)
}

/// Makes a system call. The C library is avoided: its wrappers that set user ids signal other threads, some take locks,
/// and `errno` belongs to the spawner's thread, whose memory this is.
fn call<const N: usize>(number: Sysno, arguments: [c_long; N]) -> Result<c_long, i32> {
    let mut given = [0; 6];
    given.iter_mut().zip(arguments).for_each(|(place, argument)| *place = argument as usize);
    let [first, second, third, fourth, fifth, sixth] = given;
    // SAFETY: every caller in this file passes what the call's manual page demands; pointers are to memory that the
    // callers' borrows keep alive. The kernel ignores spare arguments.
    let done = unsafe { syscalls::syscall6(number, first, second, third, fourth, fifth, sixth) };
    done.map(|answer| answer as c_long).map_err(syscalls::Errno::into_raw)
}
