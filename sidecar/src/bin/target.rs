//! `rollbox-target`: the main process of a target container.
//!
//! It keeps the container running while the sidecar starts commands in it: it waits, reaps the orphans that are
//! re-parented to it, and ends on SIGTERM or SIGINT. `--probe` exits with 0 at once; the sidecar runs that through the
//! whole spawn path before it reports the sandbox as ready. Any other argument exits with 64.

use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

const EXIT_USAGE: u8 = 64;
const EXIT_OS: u8 = 71;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => hold().map_or_else(|errno| fail(EXIT_OS, errno.desc()), |()| ExitCode::SUCCESS),
        Some("--probe") => ExitCode::SUCCESS,
        Some(_) => fail(EXIT_USAGE, "the only option is --probe"),
    }
}

/// Waits for SIGTERM or SIGINT. The signals are blocked and taken one by one: the kernel queues a blocked signal even
/// for PID 1, and otherwise drops every signal that PID 1 has no handler for.
fn hold() -> nix::Result<()> {
    let awaited: SigSet = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    awaited.thread_block()?;
    while awaited.wait()? == Signal::SIGCHLD {
        reap();
    }
    Ok(())
}

fn reap() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            _ => {}
        }
    }
}

fn fail(code: u8, sentence: &str) -> ExitCode {
    eprintln!("rollbox-target: {sentence}");
    ExitCode::from(code)
}
