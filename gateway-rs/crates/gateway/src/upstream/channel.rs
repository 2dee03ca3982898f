use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use resolve::Route;
use tonic::Status;
use tonic::body::Body;
use tower::Service;
use wire::agent::agent_client::AgentClient;

use crate::http::body::{Budget, Held};

use super::link::Unreachable;
use super::outgoing::{Outgoing, Parts, Streamed};
use super::pool::{Lease, Pool};

/// Largest message in either direction: two outputs of 16 MiB, or stdin of 16 MiB and 6 MiB of arguments, and what
/// surrounds them.
const MAX_MESSAGE_BYTES: usize = 40 << 20;

/// How often one request is sent at most. It is sent again only if the attempt before provably started nothing.
const ATTEMPTS: usize = 3;

/// A message up to this size is kept until its answer, to be sent again if the sidecar refuses it. Larger ones would
/// take too much memory for something so rare; their callers are told to retry.
const KEPT_BYTES: usize = 64 << 10;

/// The transport of gRPC stubs: the sandbox's connection, opened when needed.
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
    /// The message cannot be encoded: it is too large. Nothing was sent.
    #[error("the message cannot be encoded: {0}")]
    Encoding(#[source] Box<Status>),
    /// Something may have been sent.
    #[error("the connection was lost: {0}")]
    Lost(#[source] hyper::Error),
}

/// The body of a sidecar's answer; while it is read the connection counts as used.
type Answered = Held<Incoming, Lease>;

/// Returns stubs for the sidecar at the end of `route`. Opens no connection yet.
pub(crate) fn agent(pool: &Arc<Pool>, route: &Arc<Route>) -> AgentClient<Channel> {
    // Sidecars ignore the authority; a unix socket has none.
    let origin = Uri::from_static("http://sandbox");
    AgentClient::with_origin(Channel { lease: pool.lease(route) }, origin)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Answered>;
    type Error = SendFailed;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answered>, SendFailed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendFailed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(send(self.lease.clone(), request))
    }
}

async fn send(lease: Lease, request: Request<Body>) -> Result<Response<Answered>, SendFailed> {
    let (mut request, kept) = outgoing(request).await?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut sender = lease.sender().await?;
        let mut failed = match sender.try_send_request(request).await {
            Ok(response) => return Ok(response.map(|body| Held::new(body, lease))),
            Err(failed) => failed,
        };
        let refusal = Refusal::of(failed.error());
        if refusal == Some(Refusal::Connection) {
            lease.retire();
        }
        // The request comes back only when not a byte of it was given to the connection (hyper, TrySendError).
        let again = || kept.clone().filter(|_| refusal.is_some()).map(|request| request.map(Outgoing::Whole));
        let unstarted = failed.take_message().or_else(again);
        match unstarted {
            Some(unstarted) if attempts < ATTEMPTS => request = unstarted,
            _ => return Err(SendFailed::Lost(failed.into_error())),
        }
    }
}

/// Returns the request to send, and a copy of it for retries if it is small enough to be kept.
async fn outgoing(
    request: Request<Body>,
) -> Result<(Request<Outgoing>, Option<Request<Full<Bytes>>>), SendFailed> {
    let (mut head, body) = request.into_parts();
    if let Some(streamed) = head.extensions.remove::<Streamed>() {
        return Ok((Request::from_parts(head, Outgoing::Streamed(Parts::new(body, streamed))), None));
    }
    let budget = head.extensions.remove::<Budget>();
    let bytes = encoded(body, budget).await?;
    let small = bytes.len() <= KEPT_BYTES;
    let request = Request::from_parts(head, Full::new(bytes));
    let kept = small.then(|| request.clone());
    Ok((request.map(Outgoing::Whole), kept))
}

/// Encodes the whole message in one piece, whose memory counts against the budget of its call until it is sent.
async fn encoded(body: Body, budget: Option<Budget>) -> Result<Bytes, SendFailed> {
    let bytes = body.collect().await.map_err(|status| SendFailed::Encoding(Box::new(status)))?.to_bytes();
    Ok(match budget {
        Some(budget) => Bytes::from_owner(Counted { bytes, _budget: budget }),
        None => bytes,
    })
}

struct Counted {
    bytes: Bytes,
    _budget: Budget,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A peer's statement that it has not processed a request (RFC 9113 section 8.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// This request.
    Request,
    /// This request and any later one on the connection.
    Connection,
}

impl Refusal {
    fn of(error: &hyper::Error) -> Option<Self> {
        let error: &h2::Error = error.source()?.downcast_ref()?;
        if !error.is_remote() {
            return None;
        }
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_reset() => Some(Self::Request),
            // h2 reports it only for streams after the last one that the peer has accepted.
            Some(Reason::NO_ERROR) if error.is_go_away() => Some(Self::Connection),
            _ => None,
        }
    }
}
