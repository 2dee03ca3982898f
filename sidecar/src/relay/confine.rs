//! What the relay gives up before it reads a byte of user code.

use std::io;

use nix::sys::prctl;
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::links::MAX_CONNECTIONS;
use crate::{spawner, sys};

/// Beside its connections: the sockets it accepts from, links, the runtime's own, and one to be closed at once.
const MORE_DESCRIPTORS: usize = 64;
/// Of a connection within the sandbox: the program's, and the server's.
const DESCRIPTORS: usize = 2;
/// Of addresses. What all its connections may hold at once is a quarter of it.
const ADDRESS_BYTES: rlim_t = 192 << 20;
/// `nobody` in every image. No process of the sandbox sees this one, whoever it runs as.
const NOBODY: u32 = 65_534;

/// What a runtime that carries bytes between sockets calls. No files, no programs, no processes, no signals.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
/// The older call for the same, where an architecture has one.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[libc::c_long] = &[libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[libc::c_long] = &[];

/// New sockets are of the sandbox's own network, which is that of the programs too: they reach nothing by them that a
/// program does not reach. None is of files or of the kernel.
const NETWORKS: [libc::c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// The saved user, to which the relay cannot return: without capabilities, and with a filter that lets no change of user
/// pass. The sidecar has no capability to kill, and may signal its child by this only.
const SIDECARS: Uid = Uid::from_raw(0);

/// Gives up the user, all capabilities, and what the limits take; this process ends with its parent.
///
/// # Errors
/// The kernel refuses one of the steps.
pub(super) fn give_up() -> io::Result<()> {
    prctl::set_name(c"rollbox-relay")?;
    for (resource, most) in limits() {
        setrlimit(resource, most, most)?;
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, SIDECARS)?;
    spawner::drop_all_capabilities()?;
    prctl::set_no_new_privs()?;
    prctl::set_dumpable(false)?;
    // After the change of user, which would undo it.
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}

fn limits() -> [(Resource, rlim_t); 5] {
    let descriptors =
        rlim_t::try_from(DESCRIPTORS * MAX_CONNECTIONS + MORE_DESCRIPTORS).unwrap_or(rlim_t::MAX);
    [
        (Resource::RLIMIT_NOFILE, descriptors),
        (Resource::RLIMIT_AS, ADDRESS_BYTES),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NPROC, 0),
    ]
}

/// From here on the kernel answers any call that is not listed with an error. Comes when the runtime has all that it
/// needs.
///
/// # Errors
/// The kernel refuses.
pub(super) fn close_in() -> io::Result<()> {
    let calls = [CALLS, OLDER_CALLS].concat();
    Ok(sys::install_filter(&spawner::allowing_only(&calls, (libc::SYS_socket, &NETWORKS)))?)
}
