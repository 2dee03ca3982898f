//! The real sidecar beside a real target, driven over its real socket. Needs root.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod confinement;
mod endings;
mod hostile;
mod inheritance;
mod records;
mod sandbox;
mod start;
mod streams;
mod tcp;
