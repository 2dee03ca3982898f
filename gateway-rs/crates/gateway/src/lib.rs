//! The gateway: the one address that users know.
//!
//! It runs commands in sandboxes (HTTP in, one multiplexed gRPC connection per sandbox out) and forwards the rest of
//! the API to the control plane. It holds no state that matters: the route table is pushed, tokens are verified
//! offline. The path of an exec touches no Kubernetes API, no store and no Python.
//!
//! # Layout, from the outside in; nothing uses what is above it
//! - `run`: the whole life of the process. `settings`: the environment variables, checked before anything is bound.
//! - `server`: client connections, with their limits and timeouts. `router`: all routes. `gateway`: all parts, put
//!   together; each endpoint gets its own part.
//! - `exec`: running commands. `processes`: clients that stay attached to a command. `files`: files in and out.
//!   `ports`: ports of a sandbox. `usage`: the resources that it uses. `late_settings`: creates whose settings are bound
//!   here. `deletes`: deletes, answered once the end is known here. `forward`: everything else under `/v1`.
//! - `call`: one call to a sandbox, of any kind. `coalesced`: look-ahead in a stream. `leg`: connections for bulk data.
//! - `auth`, `admission`, `drain`: which call is allowed, which is next, and the graceful shutdown.
//! - `upstream`: connections to sidecars. `feed`: keeps the route table up to date; `dns_checks`: whether DNS agrees
//!   with it; `activity`: reports to the control plane which sandboxes are in use, off the path of the calls.
//! - `http`: requests and answers, whatever they are about. `telemetry`: metrics. `keyed_digest`: digests with a key.
//!   `certificate`: that of the port with TLS, read again on change.
//!
//! Sockets, the connection to the control plane, readers of settings, the log and the allocator's settings are in the
//! crate `program`, which `rollbox-egress` uses too.

mod activity;
mod admission;
mod auth;
mod call;
mod certificate;
mod coalesced;
mod deletes;
mod dns_checks;
mod drain;
mod draining;
pub mod exec;
mod feed;
mod files;
mod forward;
mod gateway;
mod http;
mod keyed_digest;
mod late_settings;
mod leg;
mod node_usage;
pub mod ports;
pub mod processes;
mod router;
mod run;
mod server;
mod settings;
mod telemetry;
mod upstream;
mod usage;

pub use keyed_digest::Key;
pub use program::settings::InvalidSetting;
pub use run::{Running, StartFailed, start};
pub use settings::{Headless, Settings};

#[cfg(any(test, fuzzing))]
pub use http::check_query;
#[cfg(any(test, fuzzing))]
pub use late_settings::check_split;
