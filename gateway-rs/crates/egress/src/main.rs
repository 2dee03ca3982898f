//! The process of egress: settings come from environment variables; SIGTERM or SIGINT start a graceful shutdown.

use std::process::ExitCode;

use program::process::run_from_environment;

fn main() -> ExitCode {
    ExitCode::from(run_from_environment::<egress::Running>())
}
