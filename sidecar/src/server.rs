//! The agent's gRPC service.
//!
//! # Layout
//! - `agent`: the calls, one method each; `answer`: builds messages from records; `ahead`: the interpreter of a pool.
//! - `attach`: output as a stream; `ports`: connections as streams; `egress`: the link; `files`: the calls on files; `incoming`: upload
//!   data.
//! - `uses`: for how long the sandbox has not been used.
//! - `listen`: sockets; `connections`: limits on connections, shutdown.

pub mod agent;
mod ahead;
pub mod answer;
mod attach;
pub mod connections;
mod egress;
mod files;
mod incoming;
mod interpreter;
pub mod listen;
mod ports;
pub mod uses;
