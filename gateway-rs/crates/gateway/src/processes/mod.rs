//! Clients that stay: a WebSocket to a running command, from any of its bytes on.
//!
//! - `message`: what goes over it. Pure.
//! - `socket`: a WebSocket whose dead peers and slow readers are noticed; also for connections to ports.
//! - `relay`: the client on one side, the sidecar on the other.
//! - `stdin`: what the client writes, in order and bounded.
//! - `attach`: the endpoint.

mod attach;
pub(crate) mod message;
mod relay;
pub(crate) mod socket;
mod stdin;

pub(crate) use attach::attach;
pub use message::check_decoding;
