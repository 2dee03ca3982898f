//! The agent's gRPC face.
//!
//! # Layout
//! - `agent`: the calls, one method each; `answer`: records and problems as messages.
//! - `attach`: output as a stream.
//! - `listen`: sockets; `connections`: their bounds, shutdown.

pub mod agent;
pub mod answer;
mod attach;
pub mod connections;
pub mod listen;
