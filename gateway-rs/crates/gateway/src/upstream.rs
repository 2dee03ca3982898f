//! Connections to sidecars: one multiplexed HTTP/2 connection per live sandbox, opened on demand.
//!
//! - `pool`: sandbox -> link, for as long as its route is current.
//! - `link`: one sandbox's connection: opened once for all callers that wait, closed when idle or when the route ends.
//! - `channel`: the transport of gRPC stubs; repeats only requests that provably did not start.
//! - `outgoing`: the body of a request, which is one message or messages as they come ([`Streamed`]), and of its
//!   answer.
//! - `loss`: gRPC failure -> what it means for the call.

mod channel;
mod link;
mod loss;
mod outgoing;
mod pool;

pub(crate) use channel::{Channel, agent};
pub(crate) use loss::{Loss, of};
pub(crate) use outgoing::Streamed;
pub(crate) use pool::Pool;
