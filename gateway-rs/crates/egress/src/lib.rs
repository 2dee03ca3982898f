//! Egress: the part of the platform that reaches the network for sandboxes.
//!
//! It dials in: it opens a link to each sandbox that the control plane assigns to it, over which the sandbox's relay
//! sends the connections of its programs. Here, outside of the sandbox, they are read, decided on and connected.
//!
//! # Layout, from the outside in; nothing uses what is above it
//! - `run`: the whole life of the process. `settings`: the environment variables, checked before anything is bound.
//!   `admin`: probes and metrics.
//! - `feed`: what the control plane says, and reports to it. `sandboxes`: the sandboxes of this replica.
//! - `link`: the link to a sandbox. `front`: one connection of a program: HTTP, CONNECT or SOCKS5.
//! - `outside`: look-ups and connections to servers. `gate`, `limited_stream`: the two sides of a tunnel. `stream`: a
//!   stream of the link as bytes. `paced`: the connection of a link.
//! - `live`: whether what the feed has said is so now.
//! - `sandbox`: one sandbox: its policy in force, its open connections, its limits. `report`: what waits to be told.
//!   `telemetry`: metrics.
//! - `policy`, `socks5`, `client_hello`, `limits`: pure.

mod admin;
pub mod client_hello;
mod feed;
mod front;
mod gate;
mod limited_stream;
mod limits;
mod link;
mod live;
mod outside;
mod paced;
pub mod policy;
mod report;
mod run;
mod sandbox;
mod sandboxes;
mod settings;
pub mod socks5;
mod stream;
mod telemetry;

#[cfg(any(test, fuzzing))]
pub use front::check_requests;
pub use run::{Running, StartFailed, start};
pub use settings::{Listen, Settings};
