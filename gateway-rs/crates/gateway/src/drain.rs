//! Graceful shutdown.
//!
//! serving -> draining (new calls are refused, running ones continue) -> expired (running ones are aborted) -> exit.

use tokio_util::sync::CancellationToken;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use wire::{Code, Problem};

/// The progress of the shutdown, and the calls that it waits for.
/// Cheap to clone; all clones are the same drain.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    started: CancellationToken,
    expired: CancellationToken,
    calls: TaskTracker,
    /// Calls of all kinds that may be under way.
    limit: usize,
}

/// A call under way; the drain waits until it is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    _counted: TaskTrackerToken,
}

impl Drain {
    /// A drain that has not started, for at most `limit` calls at one time.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            started: CancellationToken::new(),
            expired: CancellationToken::new(),
            calls: TaskTracker::new(),
            limit,
        }
    }

    /// Registers a new call.
    ///
    /// # Errors
    /// `draining` once the drain has started, `capacity_unavailable` when too many calls are under way.
    pub(crate) fn enter(&self) -> Result<Call, Problem> {
        // Registered before the check: a drain that starts in between either waits for this call or is seen by it.
        let call = Call { _counted: self.calls.token() };
        if self.is_draining() {
            return Err(refused());
        }
        if self.calls() > self.limit {
            let detail = format!("{} calls of all kinds are under way, no more are taken", self.limit);
            return Err(Problem::new(Code::CapacityUnavailable, detail));
        }
        Ok(call)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.started.is_cancelled()
    }

    /// serving -> draining
    pub(crate) fn start(&self) {
        self.started.cancel();
        self.calls.close();
    }

    /// draining -> expired
    pub(crate) fn expire(&self) {
        self.expired.cancel();
    }

    /// Calls under way.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Completes when the drain has started.
    pub(crate) async fn started(&self) {
        self.started.cancelled().await;
    }

    /// Completes when running calls must be aborted.
    pub(crate) async fn expired(&self) {
        self.expired.cancelled().await;
    }

    /// Completes when the drain has started and the last call has ended.
    pub(crate) async fn idle(&self) {
        self.calls.wait().await;
    }
}

/// The problem for a call that was not admitted before the drain started.
pub(crate) fn refused() -> Problem {
    Problem::new(Code::Draining, "this gateway is shutting down and takes no new calls")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_drain_refuses_new_calls_and_waits_for_the_running_ones() {
        let drain = Drain::new(2);
        let running = drain.enter().unwrap();
        drain.start();
        assert_eq!(drain.enter().unwrap_err().code, Code::Draining);
        let mut idle = std::pin::pin!(drain.idle());
        assert!(futures_util::future::poll_immediate(&mut idle).await.is_none());
        drop(running);
        idle.await;
    }
}
