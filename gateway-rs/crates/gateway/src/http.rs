//! Requests and answers in HTTP, whatever they are about. Knows neither sandboxes nor metrics.
//!
//! - `body`: request bodies. `query`, `fields`: the parts of a request, strictly checked. `request_id`, `peer`: which
//!   request, and whose.
//! - `json`: answers in JSON. `error`: the one place where a problem becomes a response.
//! - `socket`: a WebSocket that detects dead peers and slow readers.

pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod json;
mod peer;
mod query;
pub(crate) mod request_id;
pub(crate) mod socket;

pub(crate) use error::Failure;
pub(crate) use peer::Peer;
pub(crate) use query::Query;
#[cfg(any(test, fuzzing))]
pub use query::check_query;
