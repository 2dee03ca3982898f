//! Whether what the feed has said of sandboxes is so now. Asked before a link is opened: another replica may have been
//! given the sandbox, and a new link takes it from there.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A feed that was heard of longer ago may have ended without a word. Longer than the longest pause of a feed
/// (egress.proto: 5 s), shorter than a control plane waits for an answer to a ping (8 s) before it moves the sandboxes.
pub(crate) const FRESH: Duration = Duration::from_secs(6);

/// When the feed was heard of last; `None` where it is lost, or has brought no snapshot yet.
#[derive(Debug, Default)]
pub(crate) struct Heard(watch::Sender<Option<Instant>>);

impl Heard {
    /// The feed has spoken, and what it said is taken in. The first word of each is a snapshot.
    pub(crate) fn now(&self, snapshot: bool) {
        let heard = self.0.borrow().is_some() || snapshot;
        self.0.send_replace(heard.then(Instant::now));
    }

    /// The feed is lost.
    pub(crate) fn lost(&self) {
        self.0.send_replace(None);
    }

    pub(crate) fn live(&self) -> Live {
        Live(self.0.subscribe())
    }
}

/// Tells whether the feed is live.
#[derive(Debug, Clone)]
pub(crate) struct Live(watch::Receiver<Option<Instant>>);

impl Live {
    /// Whether it is connected: a snapshot has come over the present connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether it is connected, and was heard of lately.
    pub(crate) fn is_live(&self) -> bool {
        is_fresh(*self.0.borrow())
    }

    /// Completes when it is live.
    pub(crate) async fn live(&mut self) {
        if self.0.wait_for(|heard| is_fresh(*heard)).await.is_err() {
            // The process ends.
            std::future::pending::<()>().await;
        }
    }
}

fn is_fresh(heard: Option<Instant>) -> bool {
    heard.is_some_and(|at| at.elapsed() <= FRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_feed_is_live_from_its_snapshot_until_it_is_silent_or_lost() {
        let heard = Heard::default();
        let live = heard.live();
        heard.now(false);
        assert_eq!((live.is_connected(), live.is_live()), (false, false));
        heard.now(true);
        tokio::time::advance(FRESH).await;
        assert!(live.is_live());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((live.is_connected(), live.is_live()), (true, false));
        heard.now(false);
        assert!(live.is_live());
        heard.lost();
        assert_eq!((live.is_connected(), live.is_live()), (false, false));
    }
}
