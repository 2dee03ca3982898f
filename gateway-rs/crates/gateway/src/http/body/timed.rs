use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// A body of a client, or of the control plane, that is waited for; fails when its sender falls silent, so that the
/// sender cannot hold the call, and with it the shutdown, for ever.
pub(crate) struct Timed {
    body: axum::body::Body,
    limit: Duration,
    silence: Pin<Box<Sleep>>,
    /// Whether the timer `silence` runs: only while the sender is waited for, not while the receiver is slow.
    waiting: bool,
}

/// Why a [`Timed`] body failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenOff {
    #[error("nothing came for {} s", .0.as_secs())]
    Silent(Duration),
    #[error(transparent)]
    Failed(#[from] axum::Error),
}

impl Timed {
    pub(crate) fn new(body: axum::body::Body, limit: Duration) -> Self {
        Self { body, limit, silence: Box::pin(tokio::time::sleep(limit)), waiting: false }
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
            let moment = Instant::now() + self.limit;
            self.silence.as_mut().reset(moment);
        }
        ready!(self.silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(BrokenOff::Silent(self.limit))))
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
    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::super::SILENCE;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_is_given_up_and_a_slow_one_or_a_slow_reader_is_not() {
        let chunks = stream::unfold(0, |n| async move {
            tokio::time::sleep(if n < 3 { SILENCE * 2 / 3 } else { Duration::from_secs(3600) }).await;
            Some((Ok::<_, std::io::Error>("x"), n + 1))
        });
        let mut body = Timed::new(axum::body::Body::from_stream(chunks), SILENCE);
        for _ in 0..3 {
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::sleep(SILENCE * 2).await;
        }
        assert!(matches!(body.frame().await, Some(Err(BrokenOff::Silent(_)))));
    }
}
