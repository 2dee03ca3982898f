//! How many file workers there may be, and those that stay for the next call.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::{Code, Problem};

use super::frames::Job;
use super::warm::Warm;
use crate::spawner::link::lost;

/// File workers at a time; further calls queue.
const MAX_WORKERS: usize = 32;
/// Calls in the queue. What their callers send stays unread meanwhile (backpressure).
const MAX_WAITING: usize = 96;
/// Calls that watch at a time; a watch may last for days.
const MAX_WATCHES: usize = 32;

/// Limits how many file workers there may be. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    calls: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    /// The workers of earlier calls.
    pub(super) warm: Arc<Warm>,
}

impl Default for Places {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self {
            calls: places(MAX_WORKERS + MAX_WAITING),
            workers: places(MAX_WORKERS),
            watches: places(MAX_WATCHES),
            warm: Arc::default(),
        }
    }
}

impl Places {
    /// Waits for a place.
    ///
    /// # Errors
    /// `rate_limited`: too many calls wait already, or too many watch.
    pub(super) async fn take(&self, job: &Job) -> Result<Vec<OwnedSemaphorePermit>, Problem> {
        let full = |what: &str, limit: usize| {
            let detail = format!("{limit} {what} are under way in this sandbox, which is the limit");
            Problem::new(Code::RateLimited, detail).with("limit", limit)
        };
        if matches!(job, Job::Watch(_)) {
            let place = Arc::clone(&self.watches).try_acquire_owned();
            return place.map(|place| vec![place]).map_err(|_| full("watches", MAX_WATCHES));
        }
        let call = Arc::clone(&self.calls).try_acquire_owned();
        let call = call.map_err(|_| full("calls on files", MAX_WORKERS + MAX_WAITING))?;
        let worker = Arc::clone(&self.workers).acquire_owned().await.map_err(|_| lost())?;
        Ok(vec![call, worker])
    }
}
