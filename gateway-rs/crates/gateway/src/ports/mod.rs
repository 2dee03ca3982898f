//! What listens in a sandbox, for clients outside: HTTP and WebSockets by path and by host name, raw TCP and UDP.
//!
//! - `place`: which port of which sandbox a request means. `credential`: who asks; what is ours never reaches a server
//!   in a sandbox. `headers`: the rest of what changes on the way. All pure.
//! - `connection`: one connection to a port, as a byte stream over the sandbox's multiplexed one.
//! - `proxy`: HTTP/1.1 over it, one connection a request: nothing of one caller is left for the next.
//! - `raw`: the same bytes as messages of a WebSocket. `endpoints`: the routes.

mod connection;
mod credential;
pub(crate) mod endpoints;
mod headers;
mod place;
mod proxy;
mod raw;
