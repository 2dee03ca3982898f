use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

/// A body that owns `held` (the registered call, for example) until it is dropped, which is after its last byte.
pub(crate) struct Held<B, T> {
    body: B,
    _held: T,
}

impl<B, T> Held<B, T> {
    pub(crate) fn new(body: B, held: T) -> Self {
        Self { body, _held: held }
    }
}

impl<B: Body + Unpin, T: Unpin> Body for Held<B, T> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
