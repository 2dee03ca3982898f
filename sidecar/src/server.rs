//! The agent's gRPC face.
//!
//! # Layout
//! - `agent`: the calls, one method each; `answer`: records and problems as messages.
//! - `attach`: output as a stream; `listen`: sockets, connections, shutdown.

pub mod agent;
pub mod answer;
mod attach;
pub mod listen;
