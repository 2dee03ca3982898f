//! Attached clients: a WebSocket to a running command, from any offset of its output on.
//!
//! - `message`: the messages on it. Pure.
//! - `socket`: a WebSocket that detects dead peers and slow readers; also for connections to ports.
//! - `relay`: connects the client with the sidecar.
//! - `stdin`: the input that the client writes, in order and bounded.
//! - `attach`: the endpoint.

mod attach;
pub(crate) mod message;
mod relay;
pub(crate) mod socket;
mod stdin;

pub(crate) use attach::attach;
pub use message::check_decoding;
