//! How long the sandbox has not been used. Every call of every gateway passes here, so only this part can know.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// Calls that ask about the sandbox or come from other parts of the platform: they do not count as use.
const NO_USE: [&str; 6] = [
    "/rollbox.agent.v1.Agent/Health",
    "/rollbox.agent.v1.Agent/Usage",
    "/rollbox.agent.v1.Agent/List",
    "/rollbox.agent.v1.Agent/Configure",
    "/rollbox.agent.v1.Agent/OpenEgress",
    "/rollbox.agent.v1.Agent/ListRefused",
];

/// Calls under way, and when the last one ended.
#[derive(Debug)]
pub struct Uses {
    began: Instant,
    open: AtomicUsize,
    /// Since `began`.
    last_us: AtomicU64,
}

impl Default for Uses {
    fn default() -> Self {
        Self { began: Instant::now(), open: AtomicUsize::new(0), last_us: AtomicU64::new(0) }
    }
}

impl Uses {
    /// Counts a call until the returned value is dropped; `None` for a call that does not count as use.
    pub fn begin(self: &Arc<Self>, path: &str) -> Option<Use> {
        (!NO_USE.contains(&path)).then(|| {
            self.open.fetch_add(1, Ordering::Relaxed);
            Use(Arc::clone(self))
        })
    }

    /// Time since a call was last under way; zero while one is.
    pub fn quiet(&self) -> Duration {
        if self.open.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.began.elapsed().saturating_sub(Duration::from_micros(self.last_us.load(Ordering::Relaxed)))
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Use(Arc<Uses>);

impl Drop for Use {
    fn drop(&mut self) {
        let now_us = u64::try_from(self.0.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.last_us.fetch_max(now_us, Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that keeps its call under way until its last byte is sent.
#[derive(Debug)]
pub struct Held<B> {
    body: B,
    _under_way: Option<Use>,
}

impl<B> Held<B> {
    /// Wraps the answer of a call.
    pub fn new(body: B, under_way: Option<Use>) -> Self {
        Self { body, _under_way: under_way }
    }
}

impl<B: Body + Unpin> Body for Held<B> {
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_under_way_is_use_and_a_question_is_none() {
        const SECOND: Duration = Duration::from_secs(1);
        let uses = Arc::new(Uses::default());
        advance(5 * SECOND).await;
        assert!(uses.begin("/rollbox.agent.v1.Agent/Health").is_none());
        assert_eq!(uses.quiet(), 5 * SECOND);
        let call = uses.begin("/rollbox.agent.v1.Agent/Exec");
        advance(2 * SECOND).await;
        assert_eq!(uses.quiet(), Duration::ZERO);
        drop(call);
        advance(SECOND).await;
        assert_eq!(uses.quiet(), SECOND);
    }
}
