//! Files of a sandbox, streamed both ways at constant memory. Permissions are checked in the sandbox, not here.
//!
//! - `info`: `agent::FileInfo` -> JSON. Pure.
//! - `frames`: the encoding of an answer that can still fail in the middle. Pure.
//! - `operation`: one file call: its permit, its route, its outcome.
//! - `download`, `upload`: a file or an archive, out and in.
//! - `chunks`, `feed`: the data of either, as messages of the call or as bytes of a leg.
//! - `listing`, `watch`: streams of JSON.
//! - `endpoints`: the calls whose answer is one message.

mod chunks;
mod download;
mod endpoints;
mod feed;
mod frames;
mod info;
mod listing;
mod operation;
mod upload;
mod watch;

pub(crate) use download::{read_archive, read_file};
pub(crate) use endpoints::{copy, info as stat, make_directory, move_file, remove};
pub(crate) use listing::list;
pub(crate) use operation::Files;
pub(crate) use upload::{write_archive, write_file};
pub(crate) use watch::watch;
