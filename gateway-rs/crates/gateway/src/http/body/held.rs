use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// A streamed body that owns `held` (the registered call, for example) until it is dropped, which is after its last
/// byte.
pub(crate) struct Held<T> {
    body: Incoming,
    _held: T,
}

impl<T> Held<T> {
    pub(crate) fn new(body: Incoming, held: T) -> Self {
        Self { body, _held: held }
    }
}

impl<T: Unpin> Body for Held<T> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
