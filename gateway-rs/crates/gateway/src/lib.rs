//! The gateway: the one address that users know.
//!
//! It runs commands in sandboxes (HTTP in, one multiplexed gRPC connection per sandbox out) and forwards the rest of
//! the API to the control plane. It holds no state that matters: the route table is pushed, tokens are verified
//! offline. The path of an exec touches no Kubernetes API, no store and no Python.
//!
//! # Layout, from the outside in
//! - `settings`: the environment variables, checked before anything is bound. `run`: the whole life of the process.
//! - `server`: client connections, with their limits and timeouts. `router`: all routes.
//! - `exec`: the request, its call and its answer. `processes`: clients that stay attached to a command. `files`:
//!   files in and out. `forward`: everything else under `/v1`.
//! - `call`: one call to a sandbox, of any kind. `ahead`: look-ahead in a stream. `leg`: connections for bulk data.
//!   `query`, `body`: the parts of a request.
//! - `ports`: ports of a sandbox. `usage`: the resources that a sandbox uses.
//! - `auth`, `admission`, `drain`: which call is allowed, which is next, and the graceful shutdown.
//! - `activity`: reports to the control plane which sandboxes are in use, off the path of the calls.
//! - `upstream`: connections to sidecars. `feed`: keeps the route table up to date; `dns_checks`: whether DNS agrees
//!   with it. `transport`: sockets for all of them.
//! - `memory`: settings of the allocator. `telemetry`: metrics and logs. `error`: the one place where a problem
//!   becomes an HTTP response.

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
