//! Packs a tree into a tar stream and unpacks one, both in constant memory.
//!
//! # Layout
//! - `pack`: a tree as entries; `names`: which names of entries are safe to unpack.
//! - `stream`, `extended`, `sparse`: parse entries, their PAX records and long names, and their holes.
//! - `unpack`: entries as files; `destination`: confines them to one directory.

mod destination;
mod extended;
mod names;
mod pack;
mod sparse;
mod stream;
mod unpack;

pub(super) use pack::read;
#[cfg(any(test, fuzzing))]
pub use stream::check_entries;
pub(super) use unpack::write;
