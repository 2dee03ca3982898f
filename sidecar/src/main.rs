//! `rollbox-sidecar`: settings, fork of the spawner, then the runtime.

use std::process::ExitCode;
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sidecar::settings::Settings;
use sidecar::spawner::{self, Mission};
use sidecar::sys::SingleThread;
use sidecar::{install, log, run, sys};
use wire::Problem;

/// The caller's mistake: a setting.
const EXIT_USAGE: u8 = 64;
/// Ours, or the sandbox's end.
const EXIT_SOFTWARE: u8 = 70;

fn main() -> ExitCode {
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
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

/// The order matters: the environment is wiped before there is anyone to read it, the fork comes before the runtime
/// and its threads, and the powers are given up once the process that needs them is another one.
fn start(settings: Settings, started: Instant) -> Result<(), Problem> {
    let internal =
        |err: std::io::Error| Problem::new(wire::Code::Internal, format!("the sidecar cannot start: {err}"));
    // The target container is about to start and needs it.
    if let Some(Err(problem)) = settings.install.as_deref().map(install::install) {
        return Err(report(&settings, problem));
    }
    sys::return_memory_early();
    if let Err(err) = raise_descriptors() {
        log::event("descriptors_not_raised", &[("error", &err)]);
    }
    let mission = Mission {
        target_command: settings.target_command.clone(),
        start_timeout: settings.start_timeout,
        processes: settings.limits.pids,
        started,
    };
    let (socket, child) = {
        let alone = SingleThread::check().map_err(internal)?;
        alone.close_inherited().map_err(internal)?;
        alone.scrub_environment();
        spawner::begin(&mission, &alone).map_err(internal)?
    };
    spawner::shed_powers().map_err(internal)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    runtime.block_on(run::run(settings, socket, child, started))
}

/// As many as may be: calls, pipes and legs hold them, and services are often started with 1024. Commands have as
/// many as the target. Refused where a node's bound was lowered under the limit that its processes have already.
fn raise_descriptors() -> nix::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// Tells the control plane why the sandbox will never be ready.
fn report(settings: &Settings, problem: Problem) -> Problem {
    // Without a runtime the exit code and the log still say it.
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        runtime.block_on(run::tell_failure(settings, &problem));
    }
    problem
}
