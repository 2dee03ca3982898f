//! The process of egress: settings come from environment variables; SIGTERM or SIGINT start a graceful shutdown.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(egress::run_from_environment())
}
