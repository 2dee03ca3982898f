//! One sandbox at this replica: its policy in force, its open connections, its limits.
//!
//! - `state`: the sandbox. `open`: one of its connections to servers; `passage`: the right to it, on record while it
//!   lasts. `connection_permit`: a place among the connections that may be open.
//! - `owner`: what all sandboxes of an owner use together.

mod connection_permit;
mod open;
mod owner;
mod passage;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use connection_permit::ConnectionPermit;
pub(crate) use open::Protocol;
pub(crate) use owner::Owner;
pub(crate) use passage::Passage;
pub(crate) use state::{Common, Cut, Place, Sandbox};
