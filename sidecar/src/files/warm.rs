//! The file worker that stays for the next call: under gVisor a start costs several times what the call itself does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::running::Worker;

/// How long a worker waits for another call: agents come back to a sandbox after their model's turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// At most one worker that waits, and since when.
#[derive(Debug, Default)]
pub(super) struct Warm {
    kept: Mutex<Option<(Worker, Instant)>>,
}

impl Warm {
    /// The worker that waits, if there is one.
    pub(super) fn take(&self) -> Option<Worker> {
        self.lock().take().map(|(worker, _)| worker)
    }

    /// Keeps a worker for the next call, unless another one waits for it.
    pub(super) fn keep(&self, mut worker: Worker) {
        worker.from.shrink();
        drop(worker.release());
        let mut kept = self.lock();
        if kept.is_none() {
            *kept = Some((worker, Instant::now()));
        }
    }

    /// Ends a worker if it is the one that waits.
    pub(super) fn end(&self, id: u64) {
        let ended = self.lock().take_if(|(worker, _)| worker.id == id);
        drop(ended);
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
        kept.as_ref()
            .filter(|(worker, _)| worker.id == id)
            .map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Worker, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
