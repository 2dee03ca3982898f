use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::body::SILENCE;
use crate::drain::Call;

/// A body that streams through; the call counts as under way until its last byte.
pub(super) struct Held {
    body: Incoming,
    _call: Call,
}

impl Held {
    pub(super) fn new(body: Incoming, call: Call) -> Self {
        Self { body, _call: call }
    }
}

impl Body for Held {
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

/// A client's body on its way to the control plane; breaks off when the client falls silent, so that it cannot hold a
/// connection there for ever.
pub(super) struct Timed {
    body: axum::body::Body,
    silence: Pin<Box<Sleep>>,
    /// Whether `silence` runs: only while the client is waited for, not while the control plane takes its time.
    waiting: bool,
}

/// Why a [`Timed`] body broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenOff {
    #[error("nothing came for {} s", SILENCE.as_secs())]
    Silent,
    #[error(transparent)]
    Failed(#[from] axum::Error),
}

impl Timed {
    pub(super) fn new(body: axum::body::Body) -> Self {
        Self { body, silence: Box::pin(tokio::time::sleep(SILENCE)), waiting: false }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(BrokenOff::from)));
        }
        if !self.waiting {
            self.waiting = true;
            self.silence.as_mut().reset(Instant::now() + SILENCE);
        }
        ready!(self.silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(BrokenOff::Silent)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_is_given_up_and_a_slow_one_or_a_slow_reader_is_not() {
        let chunks = stream::unfold(0, |n| async move {
            tokio::time::sleep(if n < 3 { SILENCE * 2 / 3 } else { Duration::from_secs(3600) }).await;
            Some((Ok::<_, std::io::Error>("x"), n + 1))
        });
        let mut body = Timed::new(axum::body::Body::from_stream(chunks));
        for _ in 0..3 {
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::sleep(SILENCE * 2).await;
        }
        assert!(matches!(body.frame().await, Some(Err(BrokenOff::Silent))));
    }
}
