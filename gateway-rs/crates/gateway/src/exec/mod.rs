//! Running commands: `POST .../exec`, and what is asked about and done to running ones.
//!
//! - `request`: JSON -> `agent::ExecRequest`, strictly. Pure.
//! - `rules`: what every field must be. Pure.
//! - `answer`: `agent::ExecResult` -> JSON. Pure.
//! - `call`: route, place, sidecar; and what interrupts them.
//! - `endpoints`: the three of them behind HTTP.

mod answer;
mod call;
pub(crate) mod endpoints;
mod request;
mod rules;

pub(crate) use answer::end_name;
pub use request::decode;
