//! Admission: limits how many calls of one kind run at the same time, and decides which waiting call is next. Execs,
//! long-lived streams (attach, watch), connections to ports and file transfers have a gate each, so that no kind
//! starves another.
//!
//! Not a tower layer: a call takes its permit after its body was read and its route is known, so that neither a slow
//! client nor a sandbox without a route holds one.

mod queue;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use wire::{Code, Problem};

pub(crate) use queue::Limits;
use queue::{Entered, FairQueue};

/// The admission gate of one kind of call.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    timeout: Duration,
    /// Names of the settings that these limits come from, for the refusal.
    knob: &'static str,
    queue: Mutex<FairQueue<oneshot::Sender<Permit>>>,
}

/// Permission for one call to run; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    sandbox_id: Arc<str>,
    /// `None` once the permit was given back by other means.
    gate: Option<Arc<Admission>>,
}

impl Admission {
    /// A gate where a call waits at most `timeout`.
    pub(crate) fn new(limits: Limits, timeout: Duration, knob: &'static str) -> Arc<Self> {
        Arc::new(Self { limits, timeout, knob, queue: Mutex::new(FairQueue::new(limits)) })
    }

    /// Takes a permit, or waits for one.
    ///
    /// # Errors
    /// `capacity_unavailable`, which names the limit, when the wait timed out or too many calls wait already.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves the queue, or gives back the permit that it was just granted.
    ///
    /// Cost: one uncontended lock while permits are free; no timer, no allocation.
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

    /// Sandboxes with a call that runs or waits.
    pub(crate) fn sandboxes(&self) -> Vec<Arc<str>> {
        self.lock().sandboxes()
    }

    fn permit(self: &Arc<Self>, sandbox_id: Arc<str>) -> Permit {
        Permit { sandbox_id, gate: Some(Arc::clone(self)) }
    }

    /// Gives a permit back and hands it to the next call that still waits.
    fn release(self: &Arc<Self>, sandbox_id: &Arc<str>) {
        let mut sandbox_id = Arc::clone(sandbox_id);
        loop {
            // Sent without the lock. If the waiting call was dropped, the permit comes back and goes to the next one.
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
