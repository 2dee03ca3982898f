//! How many calls of a kind are under way, and who is next when all places are taken. Three gates of one make: execs,
//! streams that live long (attach, watch, ports), and transfers of files; none can starve the others.
//!
//! Not a tower layer: the place is taken after the body was read and the route is known, so that neither a slow client
//! nor a sandbox that is not there yet holds one.

mod queue;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use wire::{Code, Problem};

pub(crate) use queue::Limits;
use queue::{Entered, FairQueue};

/// The gate that every call of a kind passes.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    timeout: Duration,
    /// The settings that its limits are.
    knob: &'static str,
    queue: Mutex<FairQueue<oneshot::Sender<Permit>>>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    sandbox_id: Arc<str>,
    /// `None` once the place was given back by other means.
    gate: Option<Arc<Admission>>,
}

impl Admission {
    /// A gate where a call waits at most `timeout`.
    pub(crate) fn new(limits: Limits, timeout: Duration, knob: &'static str) -> Arc<Self> {
        Arc::new(Self { limits, timeout, knob, queue: Mutex::new(FairQueue::new(limits)) })
    }

    /// Takes a place, or waits for one.
    ///
    /// # Errors
    /// `capacity_unavailable` naming the limit, when the wait took too long or too many wait already.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves the queue, or gives the place back that it was just granted.
    ///
    /// Cost: one uncontended lock while places are free; no timer, no allocation.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        owner: &Arc<str>,
        sandbox_id: &Arc<str>,
    ) -> Result<Permit, Problem> {
        let mut granted = None;
        let ticket = || {
            let (sender, receiver) = oneshot::channel();
            granted = Some(receiver);
            sender
        };
        let entered = self.lock().enter(owner, sandbox_id, ticket);
        match (entered, granted) {
            (Entered::Queued(number), Some(granted)) => {
                let _place = Waiting { gate: self, sandbox_id, number };
                match tokio::time::timeout(self.timeout, granted).await {
                    Ok(Ok(permit)) => Ok(permit),
                    Ok(Err(_)) | Err(_) => Err(self.waited_too_long(sandbox_id)),
                }
            }
            (Entered::Full(what, limit), _) => {
                Err(self.refused(format!("{what} are at their limit of {limit}")))
            }
            _ => Ok(self.permit(Arc::clone(sandbox_id))),
        }
    }

    /// Calls under way and calls that wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.lock().counts()
    }

    /// Sandboxes with a call under way, or one that waits.
    pub(crate) fn sandboxes(&self) -> Vec<Arc<str>> {
        self.lock().sandboxes()
    }

    fn permit(self: &Arc<Self>, sandbox_id: Arc<str>) -> Permit {
        Permit { sandbox_id, gate: Some(Arc::clone(self)) }
    }

    /// Gives a place back and hands it on to the next call that still waits.
    fn release(self: &Arc<Self>, sandbox_id: &Arc<str>) {
        let mut sandbox_id = Arc::clone(sandbox_id);
        loop {
            // Sent without the lock: a permit that nobody takes any more comes back and is released in turn.
            let next = self.lock().leave(&sandbox_id);
            let Some(next) = next else { return };
            let Err(mut untaken) = next.ticket.send(self.permit(next.sandbox_id)) else { return };
            untaken.gate = None;
            sandbox_id = Arc::clone(&untaken.sandbox_id);
        }
    }

    fn waited_too_long(&self, sandbox_id: &str) -> Problem {
        let Limits { inflight, per_sandbox, .. } = self.limits;
        self.refused(format!(
            "the call waited {} ms for its turn; at most {inflight} calls run at one time, {per_sandbox} in sandbox {sandbox_id}",
            self.timeout.as_millis()
        ))
    }

    fn refused(&self, detail: String) -> Problem {
        Problem::new(Code::CapacityUnavailable, detail).with("knob", self.knob)
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<oneshot::Sender<Permit>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.release(&self.sandbox_id);
        }
    }
}

/// A call in the queue; leaves it when dropped.
struct Waiting<'a> {
    gate: &'a Admission,
    sandbox_id: &'a str,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.gate.lock().give_up(self.sandbox_id, self.number);
    }
}
