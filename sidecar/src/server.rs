//! The agent's gRPC service.
//!
//! # Layout
//! - `agent`: the calls, one method each; `answer`: builds messages from records.
//! - `attach`: output as a stream; `ports`: connections as streams; `egress`: the link; `files`: the calls on files; `incoming`: upload
//!   data.
//! - `uses`: for how long the sandbox has not been used.
//! - `listen`: sockets; `connections`: limits on connections, shutdown.

pub mod agent;
pub mod answer;
mod attach;
pub mod connections;
mod egress;
mod files;
mod incoming;
pub mod listen;
mod ports;
pub mod uses;
