use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::Full;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::body::Body;

/// The body of a request to a sidecar.
pub(super) enum Outgoing {
    /// One message, encoded.
    Whole(Full<Bytes>),
    /// Messages as they come.
    Streamed(Parts),
}

/// In the extensions of a call whose request is a stream of messages. Without it a request is taken for one message
/// and collected.
///
/// Such a call is never sent twice. When its [`DropGuard`] is dropped before the stream has ended, the stream is
/// aborted, so that the sidecar never takes a part for the whole: a client's body that fails must not end in a clean
/// end of stream. So the guard has to be dropped before the source of the messages.
#[derive(Clone)]
pub(crate) struct Streamed {
    broken: CancellationToken,
    held: Arc<dyn Any + Send + Sync>,
}

impl Streamed {
    /// `held` is dropped when the last byte has been taken, or the stream has been aborted: a sidecar that takes
    /// nothing holds the memory of its stream for longer than the call lives.
    pub(crate) fn new(held: impl Any + Send + Sync) -> (Self, DropGuard) {
        let broken = CancellationToken::new();
        let guard = broken.clone().drop_guard();
        (Self { broken, held: Arc::new(held) }, guard)
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed").field("broken", &self.broken).finish_non_exhaustive()
    }
}

/// The messages of a [`Streamed`] call.
pub(super) struct Parts {
    body: Body,
    token: CancellationToken,
    broken: Pin<Box<WaitForCancellationFutureOwned>>,
    _held: Arc<dyn Any + Send + Sync>,
}

impl Parts {
    pub(super) fn new(body: Body, streamed: Streamed) -> Self {
        let Streamed { broken: token, held } = streamed;
        Self { body, broken: Box::pin(token.clone().cancelled_owned()), token, _held: held }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let broken = || Poll::Ready(Some(Err(Status::cancelled("the caller went away"))));
        if self.broken.as_mut().poll(cx).is_ready() {
            return broken();
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            // Checked again: the caller may abort and drop the messages at the same moment.
            Poll::Ready(None) if self.token.is_cancelled() => broken(),
            polled => polled,
        }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Streamed(parts) => parts.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Streamed(parts) => parts.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Streamed(parts) => parts.body.size_hint(),
        }
    }
}
