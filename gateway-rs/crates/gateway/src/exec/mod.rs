//! Running commands: `POST .../exec`, `POST .../execs`, and what is asked about and done to running ones.
//!
//! - `request`: JSON -> `agent::ExecRequest`, strictly. Pure.
//! - `rules`: what every field must be. Pure.
//! - `answer`: `agent::ExecResult` -> JSON. Pure.
//! - `call`: route, place, sidecar; and what interrupts them.
//! - `endpoints`: all of them behind HTTP.

mod answer;
mod call;
pub(crate) mod endpoints;
mod request;
pub(crate) mod rules;

pub(crate) use answer::{end_name, ms, write};
pub(crate) use endpoints::json;
pub use request::{decode, decode_start};
