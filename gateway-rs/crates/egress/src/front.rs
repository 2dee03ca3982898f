//! One connection of a program: what it asks for, the decision, and the data.
//!
//! - `front`: the first byte says which protocol it is. `socks`, `http`: its request and its answers.
//! - `forward`: requests in absolute form. `packages`: what the package cache is told, and tells. `tunnel`: bytes both ways. `answer`: refusals in HTTP.
//! - `asking`: the decision, and the connection that it leads to.

mod answer;
mod asking;
#[cfg(any(test, fuzzing))]
mod checks;
mod forward;
mod http;
mod packages;
mod socks;
mod tunnel;

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;

use crate::outside::Outside;
use crate::sandbox::{ConnectionPermit, Sandbox};
use crate::socks5;
use crate::stream::{Carried, Incoming};
use asking::{Asking, REQUEST_DEADLINE};
#[cfg(any(test, fuzzing))]
pub use checks::check_requests;

/// Room for an ordinary request.
const FIRST_READ_BYTES: usize = 2048;

/// Serves one connection to its end.
pub(crate) async fn serve(
    sandbox: Arc<Sandbox>,
    outside: Arc<Outside>,
    (stream, incoming): (Carried, Incoming),
) {
    incoming.during(serve_stream(sandbox, outside, stream)).await;
}

async fn serve_stream(sandbox: Arc<Sandbox>, outside: Arc<Outside>, mut stream: Carried) {
    let permit = ConnectionPermit::take(&sandbox);
    let asking = Asking { sandbox, outside, permit };
    let mut first = BytesMut::with_capacity(FIRST_READ_BYTES);
    let read = tokio::time::timeout(REQUEST_DEADLINE, stream.read_buf(&mut first)).await;
    let served = match (read, first.first()) {
        (Ok(Ok(_)), Some(&socks5::VERSION)) => socks::serve(&asking, stream, first).await,
        (Ok(Ok(_)), Some(_)) => http::serve(&asking, stream, first).await,
        // It has asked for nothing.
        _ => Ok(()),
    };
    if let Err(e) = served {
        tracing::debug!(sandbox_id = asking.sandbox.id, error = %e, "connection of a program broke");
    }
}
