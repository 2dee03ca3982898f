//! `rollbox-sidecar`: reads the settings, forks the spawner, then starts the runtime.

use std::process::ExitCode;
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sidecar::relay::sockets::Sockets;
use sidecar::settings::Settings;
use sidecar::spawner::{self, SpawnerConfig};
use sidecar::sys::SingleThread;
use sidecar::{files, install, log, relay, run, sys};
use wire::{Code, Problem};

/// Exit code when a setting is invalid.
const EXIT_USAGE: u8 = 64;
/// Exit code when the sidecar fails or the sandbox has ended.
const EXIT_SOFTWARE: u8 = 70;
/// Exit code when the sandbox has written more than its disk limit; the control plane knows it.
const EXIT_DISK_FULL: u8 = 73;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == relay::ARGUMENT) {
        return relay::child::main();
    }
    let started = Instant::now();
    let settings = match Settings::read(|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(bad) => {
            log::event("bad_setting", &[("detail", &bad)]);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match start(settings, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log::event("failed", &[("code", &problem.code.name()), ("detail", &problem.detail)]);
            ExitCode::from(if problem.code == Code::DiskFull { EXIT_DISK_FULL } else { EXIT_SOFTWARE })
        }
    }
}

/// The order matters: the environment variables are wiped before another process exists that could read them, the fork
/// comes before the runtime and its threads, and the capabilities are given up once the spawner, which needs them, is a
/// process of its own, and the ports for the relay are bound.
fn start(settings: Settings, started: Instant) -> Result<(), Problem> {
    let internal =
        |err: std::io::Error| Problem::new(Code::Internal, format!("the sidecar cannot start: {err}"));
    // First, because the target container is about to start and needs its binary.
    if let Some(Err(problem)) = settings.install.as_deref().map(install::install) {
        return Err(report(&settings, problem));
    }
    sys::return_memory_early();
    if let Err(err) = raise_descriptors() {
        log::event("descriptors_not_raised", &[("error", &err)]);
    }
    let config = SpawnerConfig {
        target_command: settings.target_command.clone(),
        start_timeout: settings.start_timeout,
        cpu_millicores: settings.limits.cpu_millicores,
        processes: settings.limits.pids,
        memory_bytes: settings.limits.memory_bytes,
        file_worker: files::worker::run,
        proxy_port: settings.egress.map(|egress| egress.port),
        packages: settings.packages.clone(),
        writable_mounts: settings.writable_mounts.clone(),
        started,
    };
    let (socket, child) = {
        let alone = SingleThread::check().map_err(internal)?;
        alone.close_inherited().map_err(internal)?;
        alone.scrub_environment();
        spawner::begin(&config, &alone).map_err(internal)?
    };
    // While a low port can be bound, and before the runtime, on whose orders alone user code runs.
    let sockets = settings.egress.map(Sockets::bind).transpose();
    let sockets = sockets.map_err(|err| report(&settings, internal(err)))?;
    spawner::drop_capabilities().map_err(internal)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    runtime.block_on(run::run(settings, sockets, socket, child, started))
}

/// Raises the limit of open files to its maximum: calls, pipes and legs need descriptors, and services are often
/// started with a limit of 1024. Commands get the target's limit. The kernel refuses where a node's bound
/// (`fs.nr_open`) was lowered below the hard limit that its processes have already.
fn raise_descriptors() -> nix::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// Reports to the control plane why the sandbox will never be ready.
fn report(settings: &Settings, problem: Problem) -> Problem {
    // Without a runtime, the exit code and the log still report it.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        runtime.block_on(run::tell_failure(settings, &problem));
    }
    problem
}
