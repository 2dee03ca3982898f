//! The spawner: a single-threaded process inside the sandbox that starts commands, reaps and kills them.
//!
//! It is forked from the sidecar before the runtime exists (`begin`). The first fork finds the target and joins its
//! namespaces; its own child is PID 1 of a nested PID namespace and serves orders until the sidecar closes the
//! socket. Since it is an init, its end is the end of every command, whatever kills the sidecar.
//!
//! # Layout
//! - `frame`: the words on the socket; `channel`: the spawner's end of it, `link`: the sidecar's.
//! - `namespaces`, `proc_mount`, `seccomp`, `settle`: the way in, and what is closed behind it.
//! - `serve`: the loop; `plan`, `identity`, `terminal`, `clone`, `stall`, `untold`: a spawn; `lineage`, `sweep`: a kill.

mod channel;
mod clone;
pub mod frame;
mod identity;
mod lineage;
pub mod link;
mod namespaces;
mod plan;
mod proc_mount;
mod seccomp;
mod serve;
mod settle;
mod stall;
mod sweep;
pub mod terminal;
mod untold;

use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Pid};
use wire::{Code, Problem};

use crate::sys::SingleThread;
use crate::target::{self, Target};
use channel::Channel;
use frame::Report;
use serve::Spawner;
pub(crate) use serve::read_databases;

/// The bit of `CAP_DAC_OVERRIDE`.
const DAC_OVERRIDE: u64 = 1 << 1;

/// What the spawner needs to know.
#[derive(Debug, Clone)]
pub struct Mission {
    /// `argv[0]` of the target's main process.
    pub target_command: String,
    /// How long the target may take to appear.
    pub start_timeout: Duration,
    /// Most processes and threads of commands; 0: no limit. Kept here only where nothing outside can ([`settle`]).
    pub processes: u32,
    /// When the sidecar started; times are counted from there.
    pub started: Instant,
}

/// Forks the spawner. Returns the sidecar's end of the socket, and the first fork, which ends as soon as the
/// spawner has reported for the first time: then it wants to be reaped.
///
/// # Errors
/// The kernel refuses.
pub fn begin(mission: &Mission, alone: &SingleThread) -> io::Result<(UnixStream, Pid)> {
    let (ours, theirs) = UnixStream::pair()?;
    match alone.fork()? {
        ForkResult::Parent { child } => Ok((ours, child)),
        ForkResult::Child => {
            // Else the spawner would hold its own peer open and never see the sidecar's end.
            drop(ours);
            std::process::exit(run(mission, alone, Channel::new(theirs)));
        }
    }
}

/// Gives up this process's capabilities, but for the one that lets root write to directories of others, where the
/// agent's socket may lie. For the sidecar, once the spawner is a process of its own.
///
/// # Errors
/// The kernel refuses.
pub fn shed_powers() -> io::Result<()> {
    let own = settle::own_status()?;
    clone::set_capabilities(own.permitted & DAC_OVERRIDE, 0).map_err(io::Error::from_raw_os_error)
}

fn run(mission: &Mission, alone: &SingleThread, mut channel: Channel) -> i32 {
    let outcome = enter(mission).and_then(|(target, found_us)| {
        match alone.fork().map_err(|err| failed("fork the sandbox's init", &err))? {
            // The init lives on without us; the target's PID 1 will reap it.
            ForkResult::Parent { .. } => Ok(()),
            ForkResult::Child => serve(mission, &mut channel, target, found_us),
        }
    });
    let Err(problem) = outcome else { return 0 };
    // If even that cannot be said, the closed socket says enough.
    let _ = channel.send(&Report::Failed { code: problem.code.name().to_owned(), detail: problem.detail });
    1
}

/// Everything up to the nested PID namespace, which only the next child will be in.
fn enter(mission: &Mission) -> Result<(Target, u64), Problem> {
    let target = target::wait(&mission.target_command, mission.start_timeout)?;
    let found_us = elapsed_us(mission);
    namespaces::join(target.pid).map_err(|err| failed("join the target's namespaces", &err))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(|err| failed("make a PID namespace", &err))?;
    Ok((target, found_us))
}

fn serve(
    mission: &Mission,
    channel: &mut Channel,
    target: Target,
    target_found_us: u64,
) -> Result<(), Problem> {
    let settled =
        settle::settle(target, mission.processes).map_err(|err| failed("settle in the sandbox", &err))?;
    let kernel = settled.kernel.clone();
    let mut spawner = Spawner::new(settled).map_err(|err| failed("watch for ended processes", &err))?;
    let ready = Report::Ready { kernel, target_found_us, entered_us: elapsed_us(mission) };
    // From here on an error means that the sidecar is gone, so there is nobody to tell.
    let _ = channel.send(&ready).and_then(|()| spawner.serve(channel));
    Ok(())
}

fn elapsed_us(mission: &Mission) -> u64 {
    u64::try_from(mission.started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn failed(what: &str, err: &dyn Display) -> Problem {
    Problem::new(Code::Internal, format!("the sidecar cannot {what}: {err}"))
}
