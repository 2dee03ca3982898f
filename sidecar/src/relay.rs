//! The relay: a child process that takes the connections of the sandbox's programs to the proxy's port, and sends each
//! one up the link to the egress part of the platform.
//!
//! It reads what user code sends, so it is not the process that enforces deadlines: the sidecar's own program, executed
//! again, without powers and with limits of its own. Of a connection it reads no more than which host is asked for: one to
//! the sandbox itself it connects itself, and all others go up the link as they are. The sidecar
//! binds the sockets before user code runs, never accepts from them itself, and starts the relay when the first
//! connection or the first link comes; a sandbox that uses no network has none.
//!
//! # Layout
//! - `sockets`: what is bound on the sandbox's loopback; `control`: the messages between sidecar and relay.
//! - `supervisor`: the sidecar's side: starts the relay, starts it again when it ends, hands it links.
//! - `child`: the relay's process; `confine`: what it gives up; `first_request`, `http`, `socks`: where a connection is to
//!   go, as `asked` has it; `inside`: those to the sandbox itself; `links`, `carry`: connections on the link; `refusal`: the
//!   answers without one; `names`: the resolver that knows no name; `wanted`: what was asked for; `tally`: what it tells the
//!   sidecar, and `refusals`: what the sidecar keeps of that.

mod asked;
mod carry;
pub mod child;
mod confine;
mod control;
mod first_request;
mod http;
mod inside;
mod links;
mod names;
mod refusal;
mod refusals;
pub mod sockets;
mod socks;
pub mod supervisor;
mod tally;
mod wanted;

#[cfg(any(test, fuzzing))]
pub use names::check_answer;

/// The argument with which the sidecar executes itself as the relay.
pub const ARGUMENT: &str = "--relay";
