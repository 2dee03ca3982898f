//! The init's setup in the sandbox: its own mounts, and everything that commands inherit from it.

use std::fs;
use std::io;
use std::path::PathBuf;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Uid, geteuid, getuid, setgroups, setresgid, setresuid};

use super::identity::Databases;
use super::seccomp::InitSignals;
use super::{clone, image_volumes, kernel_settings, memory_mounts, proc_mount, seccomp, writable_mounts};
use crate::sys;
use crate::target::Target;
use crate::target::limits::{self, Limit};
use crate::target::status::{self, Status};

/// `PR_CAP_AMBIENT_CLEAR_ALL`
const AMBIENT_CLEAR_ALL: libc::c_long = 4;
const CAPABILITIES: u32 = 64;
/// `daemon` in every image; it owns nothing that matters here.
const NOT_ROOT: Uid = Uid::from_raw(1);

/// The sidecar's own threads and the waiting processes of both containers, which count as root's.
const OWN_PROCESSES: u64 = 8;

/// What the init knows of the sandbox after its setup.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) target: Target,
    /// The target's limits and the one for processes, none above what this process may set.
    pub(super) limits: Vec<Limit>,
    /// Capabilities of commands that run as root: the target's, as far as this process has them.
    pub(super) permitted: u64,
    pub(super) inheritable: u64,
    /// The user files as the image has them.
    pub(super) databases: Databases,
    /// `/proc/version`
    pub(super) kernel: String,
    /// Whether the kernel picks single processes when memory runs out. To the kernel that does so gVisor is one
    /// process.
    pub(super) oom_killer: bool,
}

/// Sets up the init, in this order: mounts while they are possible, then the properties that commands inherit, last the
/// seccomp filter, which denies mounts to this process too.
///
/// `memory_bytes` is the size of `/dev/shm` (0: as the runtime has made it), `mounted` where the platform has mounted
/// folders of the node that programs may write to.
///
/// The limit `processes` for commands is enforced under gVisor (0: no limit). The control group that an engine limits
/// does not see inside that kernel, where a fork bomb takes the whole sandbox's memory and leaves this process no time.
pub(super) fn set_up(
    target: Target,
    processes: u32,
    memory_bytes: u64,
    mounted: &[PathBuf],
) -> io::Result<Setup> {
    prctl::set_name(c"rollbox-spawner")?;
    // Commands see this process as PID 1. They must not ptrace it or read its files in `/proc`, whatever capabilities
    // they have.
    prctl::set_dumpable(false)?;
    guard_limits();
    SigSet::all().thread_block()?;
    sys::default_signals();
    let gvisor = proc_mount::is_gvisor();
    let mounted = writable_mounts::places(mounted);
    image_volumes::detach(&target, &mounted)?;
    writable_mounts::open_to_all(&mounted);
    memory_mounts::settle(&target, memory_bytes, gvisor)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    proc_mount::replace()?;
    if gvisor {
        kernel_settings::write();
    }
    proc_mount::protect()?;
    let own = own_status()?;
    let permitted = target.status.bounding & own.permitted;
    let inheritable = target.status.inheritable & own.permitted;
    hand_down(&own, target.status.bounding, inheritable)?;
    inherit_from(&target.status)?;
    let init = if gvisor { InitSignals::Exposed } else { InitSignals::Shielded };
    sys::install_filter(&seccomp::program(init))?;
    let mut wanted = target.limits.clone();
    if gvisor && processes > 0 {
        limit_processes(&mut wanted, processes);
    }
    Ok(Setup {
        limits: within_reach(&wanted, &limits::parse(&fs::read_to_string("/proc/self/limits")?)),
        kernel: fs::read_to_string("/proc/version")?.trim_end().to_owned(),
        databases: Databases::read(),
        oom_killer: !gvisor,
        permitted,
        inheritable,
        target,
    })
}

/// A process whose user id equals all three user ids of another one may set that one's resource limits. So root
/// commands could starve this process (`prlimit --pid 1 --nofile=3`) and make its end look like the platform's fault.
/// With a saved id that differs from the other two no process matches. Children of this process set all three ids
/// anyway.
fn guard_limits() {
    // Where that id is not mapped, the call fails; commands can then spoil only their own sandbox.
    let _ = setresuid(getuid(), geteuid(), NOT_ROOT);
}

/// Sets what a command of the target's own user inherits from this process and need not set itself.
fn inherit_from(target: &Status) -> io::Result<()> {
    std::env::set_current_dir("/")?;
    umask(Mode::from_bits_truncate(target.umask));
    setgroups(&target.groups.iter().copied().map(Gid::from_raw).collect::<Vec<_>>())?;
    let gid = Gid::from_raw(target.gid);
    Ok(setresgid(gid, gid, gid)?)
}

pub(super) fn own_status() -> io::Result<Status> {
    let text = fs::read_to_string("/proc/self/status")?;
    status::parse(&text).ok_or_else(|| io::Error::other("/proc/self/status is not of the known form"))
}

/// Every child inherits the bounding and inheritable sets, so they are set once here and not by each child. This
/// process keeps its permitted set: it executes no other program.
fn hand_down(own: &Status, bounding: u64, inheritable: u64) -> io::Result<()> {
    let excess = own.bounding & !bounding;
    for capability in (0..CAPABILITIES).filter(|bit| excess >> bit & 1 == 1) {
        clone::prctl(libc::PR_CAPBSET_DROP, [capability.into(), 0]).map_err(io::Error::from_raw_os_error)?;
    }
    clone::set_capabilities(own.permitted, inheritable).map_err(io::Error::from_raw_os_error)?;
    clone::prctl(libc::PR_CAP_AMBIENT, [AMBIENT_CLEAR_ALL, 0]).map_err(io::Error::from_raw_os_error)
}

/// A hard limit above this process's own cannot be set. The engine gives both containers the same limits, so this has
/// an effect only when it does not.
fn within_reach(wanted: &[Limit], own: &[Limit]) -> Vec<Limit> {
    let ceiling =
        |resource| own.iter().find(|limit| limit.resource == resource).map_or(0, |limit| limit.hard);
    let clamp = |limit: &Limit| {
        let hard = limit.hard.min(ceiling(limit.resource));
        Limit { hard, soft: limit.soft.min(hard), ..*limit }
    };
    wanted.iter().map(clamp).filter(|limit| !own.contains(limit)).collect()
}

/// The limit is per user, so a command that changes users may have more (a command counts as root's when it is
/// started). This process has no such limit and can always start another command. No command can raise it: that takes a
/// capability that no container has.
fn limit_processes(wanted: &mut Vec<Limit>, most: u32) {
    let most = u64::from(most) + OWN_PROCESSES;
    let of = |limit: &Limit| limit.resource == libc::RLIMIT_NPROC;
    let most = wanted.iter().find(|limit| of(limit)).map_or(most, |limit| most.min(limit.soft));
    wanted.retain(|limit| !of(limit));
    wanted.push(Limit { resource: libc::RLIMIT_NPROC, soft: most, hard: most });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_of_processes_holds() {
        let limit = |soft, hard| Limit { resource: libc::RLIMIT_NPROC, soft, hard };
        let other = Limit { resource: libc::RLIMIT_CPU, soft: 1, hard: 2 };
        let limited = |mut wanted: Vec<Limit>| {
            limit_processes(&mut wanted, 64);
            wanted
        };
        assert_eq!(limited(vec![limit(limits::UNLIMITED, limits::UNLIMITED), other]), [other, limit(72, 72)]);
        assert_eq!(limited(vec![limit(20, 30)]), [limit(20, 20)]);
        assert_eq!(limited(Vec::new()), [limit(72, 72)]);
    }

    #[test]
    fn limits_are_brought_within_reach_and_those_that_hold_already_left_out() {
        let limit = |resource, soft, hard| Limit { resource, soft, hard };
        let own = [limit(1, 10, 20), limit(2, 5, 5), limit(3, 1, 9)];
        let wanted = [limit(1, 30, limits::UNLIMITED), limit(2, 5, 5), limit(3, 2, 8)];
        assert_eq!(within_reach(&wanted, &own), [limit(1, 20, 20), limit(3, 2, 8)]);
    }
}
