use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tower::Service;

use super::link::Unreachable;
use super::pool::Lease;

/// Connections tried for one request, each only because the one before provably took nothing.
const ATTEMPTS: usize = 3;

/// What gRPC stubs send through: the sandbox's connection, opened when needed.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    lease: Lease,
}

/// Why a request got no response head.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFailed {
    /// Nothing was sent.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Something may have been sent.
    #[error("the connection was lost: {0}")]
    Lost(#[source] hyper::Error),
}

impl Channel {
    pub(super) fn new(lease: Lease) -> Self {
        Self { lease }
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = SendFailed;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, SendFailed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendFailed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(send(self.lease.clone(), request))
    }
}

async fn send(lease: Lease, mut request: Request<Body>) -> Result<Response<Incoming>, SendFailed> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut sender = lease.link.sender(&lease.pool).await?;
        let mut failed = match sender.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        // The request comes back only when not a byte of it was given to the connection (hyper, TrySendError).
        match failed.take_message() {
            Some(unsent) if attempts < ATTEMPTS => request = unsent,
            _ => return Err(SendFailed::Lost(failed.into_error())),
        }
    }
}
