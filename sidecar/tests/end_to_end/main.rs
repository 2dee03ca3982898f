//! The real sidecar beside a real target, driven over its real socket. Needs root.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod confinement;
mod egress;
mod endings;
mod files;
mod hostile;
mod inheritance;
mod ports;
mod records;
mod sandbox;
mod start;
mod streams;
mod tcp;
mod terminals;
mod usage;
mod waits;
