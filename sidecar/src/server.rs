//! The agent's gRPC face.
//!
//! # Layout
//! - `agent`: the calls, one method each; `answer`: records and problems as messages.
//! - `attach`: output as a stream; `ports`: connections as streams; `files`: the calls on files.
//! - `uses`: for how long nobody has called.
//! - `listen`: sockets; `connections`: their bounds, shutdown.

pub mod agent;
pub mod answer;
mod attach;
pub mod connections;
mod files;
mod incoming;
pub mod listen;
mod ports;
pub mod uses;
