//! Attached clients: a WebSocket to a running command, from any offset of its output on.
//!
//! - `message`: the messages on it. Pure.
//! - `relay`: connects the client with the sidecar.
//! - `stdin`: the input that the client writes, in order and bounded.
//! - `attach`: the endpoint.

mod attach;
mod message;
mod relay;
mod stdin;

pub(crate) use attach::{Attaches, attach};
#[cfg(any(test, fuzzing))]
pub use message::check_decoding;
