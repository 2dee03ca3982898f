//! The spawner: a single-threaded process inside the sandbox that starts commands, reaps and kills them.
//!
//! It is forked from the sidecar before the runtime exists (`begin`). The first fork finds the target and joins its
//! namespaces; its own child is PID 1 of a nested PID namespace and serves orders until the sidecar closes the socket.
//! Since it is an init, the kernel kills every command when it ends, whatever kills the sidecar.
//!
//! # Layout
//! - `frame`: the protocol on the socket; `channel`: the spawner's end of it, `link`: the sidecar's.
//! - `namespaces`, `image_volumes`, `writable_mounts`, `memory_mounts`, `proc_mount`, `kernel_settings`, `seccomp`,
//!   `setup`: enter the sandbox, and protect it from commands.
//! - `serve`: the main loop; `plan`, `proxies`, `processors`, `identity`, `terminal`, `clone`, `stall`, `unreported`:
//!   start a command; `lineage`, `sweep`: kill one.

mod channel;
mod clone;
pub mod frame;
mod identity;
mod image_volumes;
mod kernel_settings;
mod lineage;
pub mod link;
mod memory_mounts;
mod namespaces;
mod plan;
mod proc_mount;
mod processors;
mod proxies;
mod seccomp;
mod serve;
mod setup;
mod stall;
mod sweep;
pub mod terminal;
mod unreported;
mod writable_mounts;

use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Pid};
use wire::{Code, Problem};

use crate::itself::Itself;
use crate::sys::SingleThread;
use crate::target::{self, Target};
use channel::Channel;
use frame::Report;
pub(crate) use identity::Databases;
#[cfg(any(test, fuzzing))]
pub use identity::check_databases;
pub(crate) use seccomp::allowing_only;
use serve::Spawner;

/// The bit of `CAP_DAC_OVERRIDE`.
const DAC_OVERRIDE: u64 = 1 << 1;

/// The spawner's configuration.
#[derive(Debug, Clone)]
pub struct SpawnerConfig {
    /// `argv[0]` of the target's main process.
    pub target_command: String,
    /// How long the target may take to appear.
    pub start_timeout: Duration,
    /// The limit that commands' variables tell them, in thousandths of a core; 0: none is known.
    pub cpu_millicores: u32,
    /// Processes and threads of commands at most; 0: no limit. Enforced here only where nothing outside can
    /// ([`setup`]).
    pub processes: u32,
    /// The sandbox's memory, which is the size of `/dev/shm`; 0: that stays as the runtime has made it.
    pub memory_bytes: u64,
    /// What a forked process does that is a file worker.
    pub file_worker: extern "C" fn(),
    /// The port of the proxy on the sandbox's loopback, which commands' variables name; none where there is no proxy.
    pub proxy_port: Option<u16>,
    /// The package indexes that the package cache has.
    pub packages: Vec<String>,
    /// Where the platform has mounted folders of the node that programs may write to.
    pub writable_mounts: Vec<PathBuf>,
    /// When the sidecar started; reported times count from there.
    pub started: Instant,
}

/// Forks the spawner. Returns the sidecar's end of the socket, and the first fork, which ends after the first report
/// and must then be reaped.
///
/// # Errors
/// The kernel refuses the fork or the socket.
pub fn begin(config: &SpawnerConfig, alone: &SingleThread) -> io::Result<(UnixStream, Pid)> {
    let (ours, theirs) = UnixStream::pair()?;
    match alone.fork()? {
        ForkResult::Parent { child } => Ok((ours, child)),
        ForkResult::Child => {
            // Otherwise the spawner would hold its own peer open and never see the sidecar's end of the socket close.
            drop(ours);
            std::process::exit(run(config, alone, Channel::new(theirs)));
        }
    }
}

/// Gives up this process's capabilities, except the one that lets root write to other users' directories, where the
/// agent's socket may lie. Called in the sidecar, once the spawner is a process of its own.
///
/// # Errors
/// The kernel refuses.
pub fn drop_capabilities() -> io::Result<()> {
    let own = setup::own_status()?;
    clone::set_capabilities(own.permitted & DAC_OVERRIDE, 0).map_err(io::Error::from_raw_os_error)
}

/// Gives up all capabilities of this process. Called in the relay.
///
/// # Errors
/// The kernel refuses.
pub fn drop_all_capabilities() -> io::Result<()> {
    clone::set_capabilities(0, 0).map_err(io::Error::from_raw_os_error)
}

fn run(config: &SpawnerConfig, alone: &SingleThread, mut channel: Channel) -> i32 {
    let outcome = enter(config).and_then(|(target, found_us)| {
        match alone.fork().map_err(|err| failed("fork the sandbox's init", &err))? {
            // The init lives on without this process; the target's PID 1 will reap it.
            ForkResult::Parent { .. } => Ok(()),
            ForkResult::Child => serve(config, &mut channel, target, found_us),
        }
    });
    let Err(problem) = outcome else { return 0 };
    // If the report cannot be sent, the closed socket shows the failure.
    let _ = channel.send(&Report::Failed { code: problem.code.name().to_owned(), detail: problem.detail });
    1
}

/// Everything before the nested PID namespace, which only the next child will be in.
fn enter(config: &SpawnerConfig) -> Result<(Target, u64), Problem> {
    let target = target::wait(&config.target_command, config.start_timeout)?;
    let found_us = elapsed_us(config);
    namespaces::join(target.pid).map_err(|err| failed("join the target's namespaces", &err))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(|err| failed("make a PID namespace", &err))?;
    Ok((target, found_us))
}

fn serve(
    config: &SpawnerConfig,
    channel: &mut Channel,
    mut target: Target,
    target_found_us: u64,
) -> Result<(), Problem> {
    processors::add(&mut target.environ, config.cpu_millicores, processors::here());
    if let Some(port) = config.proxy_port {
        proxies::add(&mut target.environ, port, &Itself::here(), &config.packages);
    }
    let setup = setup::set_up(target, config.processes, config.memory_bytes, &config.writable_mounts)
        .map_err(|err| failed("set up the sandbox's init", &err))?;
    let kernel = setup.kernel.clone();
    let mut spawner =
        Spawner::new(setup, config.file_worker).map_err(|err| failed("watch for ended processes", &err))?;
    let ready = Report::Ready { kernel, target_found_us, entered_us: elapsed_us(config) };
    // From here on an error means that the sidecar is gone, so it is not reported.
    let _ = channel.send(&ready).and_then(|()| spawner.serve(channel));
    Ok(())
}

fn elapsed_us(config: &SpawnerConfig) -> u64 {
    u64::try_from(config.started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn failed(what: &str, err: &dyn Display) -> Problem {
    Problem::new(Code::Internal, format!("the sidecar cannot {what}: {err}"))
}
