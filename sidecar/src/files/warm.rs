//! The file workers that stay for the next call: under gVisor a start costs several times what the call itself does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::running::Worker;

/// How long a worker waits for another call: agents come back to a sandbox after their model's turn.
const PATIENCE: Duration = Duration::from_secs(60);
/// Workers that wait, one of a user: the sandbox's own, and root or the one that a harness names.
const MOST: usize = 2;

/// The workers that wait, those that waited longest first.
#[derive(Debug, Default)]
pub(super) struct Warm {
    kept: Mutex<Vec<(Worker, Instant)>>,
}

impl Warm {
    /// The worker of this user that waits, if there is one.
    pub(super) fn take(&self, user: &str) -> Option<Worker> {
        self.remove(|worker| worker.user == user)
    }

    /// Keeps a worker for the next call, unless another one of its user waits for it.
    pub(super) fn keep(&self, mut worker: Worker) {
        worker.from.shrink();
        drop(worker.release());
        let mut kept = self.lock();
        if kept.iter().any(|(other, _)| other.user == worker.user) {
            return;
        }
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push((worker, Instant::now()));
    }

    /// Ends a worker if it is one that waits.
    pub(super) fn end(&self, id: u64) {
        drop(self.remove(|worker| worker.id == id));
    }

    /// Ends this worker once it has waited too long; never returns.
    pub(super) async fn watch(&self, id: u64) {
        loop {
            let waited = self.waited(id);
            if waited >= PATIENCE {
                self.end(id);
            }
            sleep(PATIENCE.saturating_sub(waited).max(Duration::from_secs(1))).await;
        }
    }

    /// How long a worker has waited; nothing while a call has it.
    fn waited(&self, id: u64) -> Duration {
        let kept = self.lock();
        kept.iter().find(|(worker, _)| worker.id == id).map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    fn remove(&self, is_it: impl Fn(&Worker) -> bool) -> Option<Worker> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(worker, _)| is_it(worker))?;
        Some(kept.remove(at).0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Worker, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
