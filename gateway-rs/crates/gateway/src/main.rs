//! The gateway's process: settings come from environment variables; SIGTERM or SIGINT start a graceful shutdown.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gateway::run_from_environment())
}
