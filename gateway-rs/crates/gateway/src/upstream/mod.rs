//! Connections to sidecars: one multiplexed HTTP/2 connection a live sandbox, opened on demand.
//!
//! - `pool`: sandbox -> link, for as long as its route is true.
//! - `link`: one sandbox's connection: opened once for all who wait, closed when idle or when the route ends.
//! - `channel`: what gRPC stubs send through; repeats only what provably did not start.
//! - `loss`: gRPC failure -> what it means for the call.

mod channel;
mod link;
mod loss;
mod pool;

pub(crate) use loss::{Loss, of};
pub(crate) use pool::Pool;
