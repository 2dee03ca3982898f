//! Ports of a sandbox for clients outside: HTTP and WebSockets by path and by host name, raw TCP and UDP.
//!
//! - `place`: which port of which sandbox a request means. `credential`: the tokens of a request, none of which
//!   reaches a server in a sandbox. `headers`: the other headers that change on the way. `address`: the
//!   server's own address and the client's, one made the other. `cookies`: those that a server sets. All pure.
//! - `connection`: one connection to a port, as a byte stream over the sandbox's multiplexed connection.
//! - `proxy`: HTTP/1.1 over it, one connection per request: nothing of one caller is left for the next.
//! - `raw`: TCP and UDP as messages of a WebSocket. `endpoints`: the routes; `state`: what they share.

mod address;
#[cfg(any(test, fuzzing))]
mod checks;
mod connection;
mod cookies;
mod credential;
pub(crate) mod endpoints;
mod headers;
mod place;
mod proxy;
mod raw;
mod state;

#[cfg(any(test, fuzzing))]
pub use checks::{check_answer, check_request};
pub(crate) use state::Ports;
