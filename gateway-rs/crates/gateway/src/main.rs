//! The gateway's process: settings from the environment, SIGTERM or SIGINT to drain and leave.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gateway::run_from_environment())
}
