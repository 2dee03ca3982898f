//! Running commands: `POST .../exec`, `POST .../execs`, and listing, signalling and cancelling execs.
//!
//! - `request`: JSON -> `agent::ExecRequest`, strictly. Pure.
//! - `rules`: the constraints of every field. Pure.
//! - `answer`: `agent::ExecResult` -> JSON. Pure.
//! - `call`: route, permit, call to the sidecar, and what interrupts them.
//! - `endpoints`: the HTTP handlers.

mod answer;
mod call;
pub(crate) mod endpoints;
mod request;
pub(crate) mod rules;

pub(crate) use call::Execs;
pub use request::{decode, decode_start};
