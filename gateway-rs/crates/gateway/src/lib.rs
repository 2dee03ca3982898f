//! The gateway: the one address that users know.
//!
//! It runs commands in sandboxes (HTTP in, one multiplexed gRPC connection a sandbox out) and forwards the rest of the
//! API to the control plane. It holds nothing that matters: the route table is pushed, tokens are verified offline.
//! The path of an exec touches no Kubernetes API, no store and no Python.
//!
//! # Layout, from the outside in
//! - `settings`: the environment, checked before anything is bound. `run`: the whole life of the process.
//! - `server`: connections: accepted, bounded, timed. `router`: all routes on one screen.
//! - `exec`: the request, its call and its answer. `processes`: clients that stay attached to a command. `files`: files
//!   in and out. `forward`: everything else under `/v1`.
//! - `call`: one call to a sandbox, of whatever kind. `ahead`: a stream that can be looked into. `query`, `body`: what requests bring.
//! - `ports`: what listens in a sandbox. `usage`: what a sandbox uses.
//! - `auth`, `admission`, `drain`: who may, who is next, and when nobody may any more.
//! - `activity`: what is in use, told to the control plane behind the calls.
//! - `upstream`: connections to sidecars. `feed`: the route table kept true; `dns_checks`: whether DNS says the same.
//!   `transport`: sockets for all of them.
//! - `memory`: what the allocator keeps. `telemetry`: metrics and logs. `error`: the one place where a problem becomes an answer.

mod activity;
mod admission;
mod ahead;
mod auth;
mod body;
mod call;
mod dns_checks;
mod drain;
mod error;
pub mod exec;
mod feed;
mod files;
mod forward;
mod gateway;
mod leg;
mod memory;
pub mod ports;
pub mod processes;
mod query;
mod request_id;
mod router;
mod run;
mod server;
mod settings;
mod telemetry;
mod transport;
mod upstream;
mod usage;

pub use run::{EXIT_FAILED, EXIT_SETTINGS, Running, StartFailed, run_from_environment, start};
pub use settings::{Headless, InvalidSetting, Settings};
