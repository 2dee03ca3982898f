//! Error codes and protocol messages, shared by all parts of rollbox.
//!
//! A leaf of the workspace: it does no I/O and needs no runtime. `code` is generated from `contract/errors.toml`,
//! `agent`, `egress` and `routes` from the protocol files beside it.

mod code;
mod end;
mod gathered;
mod problem;

pub use code::{Code, Fault, Retry};
pub use end::end_name;
pub use gathered::Gathered;
pub use problem::Problem;

/// Messages and, with feature `rpc`, stubs of `contract/agent.proto`.
pub mod agent {
    #![allow(missing_docs, reason = "the documentation is in the protocol file")]
    #![allow(clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/rollbox.agent.v1.rs"));
}

/// Messages and, with feature `rpc`, stubs of `contract/egress.proto`.
pub mod egress {
    #![allow(missing_docs, reason = "the documentation is in the protocol file")]
    #![allow(clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/rollbox.egress.v1.rs"));
}

/// Messages and, with feature `rpc`, stubs of `contract/routes.proto`.
pub mod routes {
    #![allow(missing_docs, reason = "the documentation is in the protocol file")]
    #![allow(clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/rollbox.routes.v1.rs"));
}
