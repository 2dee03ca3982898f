//! Connections to sidecars: one multiplexed HTTP/2 connection a live sandbox, opened on demand.
//!
//! - `pool`: sandbox -> link, for as long as its route is true.
//! - `link`: one sandbox's connection: opened once for all who wait, closed when idle or when the route ends.
//! - `channel`: what gRPC stubs send through; repeats only what provably did not start.
//! - `outgoing`: one message, or messages as they come ([`Streamed`]); what comes back.
//! - `loss`: gRPC failure -> what it means for the call.

mod channel;
mod link;
mod loss;
mod outgoing;
mod pool;

pub(crate) use channel::Channel;
pub(crate) use loss::{Loss, of};
pub(crate) use outgoing::Streamed;
pub(crate) use pool::Pool;
