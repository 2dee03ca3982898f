//! Where a sandbox is: sandbox id -> address.
//!
//! The pushed route table answers first. For an id that it does not know, the push is awaited briefly, then headless
//! DNS is queried if there is a zone. Every [`Route`] says which of the two it came from ([`Source`]).
//!
//! # Layout
//! - `address`: `unix:/PATH` and `http://HOST:PORT`.
//! - `ports`: the public ports of a sandbox.
//! - `route`: a route, its end ([`Tombstone`]) and why it is not valid any more ([`RouteEnd`]).
//! - `table`: snapshots and deltas in, routes out, fenced by generation; no I/O.
//! - `update`: the feed's messages as values of this crate.
//! - `directory`: the table as all calls share it; a call can wait for an id.
//! - `dns`: the fallback, behind a trait; `shard`: which headless Service has a sandbox.
//! - `resolver`: the order of the fallbacks.
//!
//! No module opens a connection to a sandbox; the only clock is the runtime's.

mod address;
mod directory;
mod dns;
mod ports;
mod resolver;
mod route;
mod shard;
mod table;
mod update;

pub use address::{Address, InvalidAddress};
pub use directory::{Directory, Found};
pub use dns::{Dns, Lookup, LookupFailed, NameServers};
pub use ports::PublicPorts;
pub use resolver::Resolver;
pub use route::{Route, RouteEnd, Source, Tombstone};
pub use shard::shard;
pub use table::{Applied, Table};
pub use update::{End, Entry, Update};
