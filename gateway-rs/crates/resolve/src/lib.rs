//! Where a sandbox is: sandbox id -> address.
//!
//! The pushed route table answers first; for an id that it does not know the push is waited for briefly, then
//! headless DNS is asked when there is a zone. Every [`Route`] says which of the two it came from ([`Source`]).
//!
//! # Layout
//! - `address`: `unix:/PATH` and `http://HOST:PORT`.
//! - `ports`: what of a sandbox is open to anyone.
//! - `route`: a route, its end ([`Tombstone`]) and what becomes of it ([`Fate`]).
//! - `table`: pure; snapshots and deltas in, routes out, fenced by generation.
//! - `update`: the feed's messages as values of this crate.
//! - `directory`: the table shared between calls, with calls waiting for an id.
//! - `dns`: the fallback, behind a trait; `shard`: which headless service has a sandbox.
//! - `resolver`: the order of the fallbacks.
//!
//! No module opens a connection to a sandbox; the runtime's timer is the only time here.

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
pub use route::{Fate, Route, Source, Tombstone};
pub use shard::shard;
pub use table::{Applied, Table};
pub use update::{End, Entry, Update};
