//! Tar streams: a tree out, a tree in. Constant memory either way.
//!
//! # Layout
//! - `pack`: a tree as entries; `names`: which names may come in.
//! - `stream`, `extended`, `sparse`: reading entries, their long names, their holes.
//! - `unpack`: entries as files, `destination`: where they go and nowhere else.

mod destination;
mod extended;
mod names;
mod pack;
mod sparse;
mod stream;
mod unpack;

pub(super) use pack::read;
pub(super) use unpack::write;

/// Tar's unit.
const BLOCK_BYTES: usize = 512;
