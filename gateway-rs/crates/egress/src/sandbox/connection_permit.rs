use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::state::{Sandbox, spent};
use crate::policy::Refusal;

/// A connection's place among those that the sandbox, its owner and the replica may have at one time.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<Sandbox>);

impl ConnectionPermit {
    /// Takes a place for a new connection.
    ///
    /// # Errors
    /// A limit is reached; the refusal names it.
    pub(crate) fn take(sandbox: &Arc<Sandbox>) -> Result<Self, Refusal> {
        let mut state = sandbox.lock();
        let policy = Arc::clone(&state.policy);
        let limits = sandbox.limits(&policy);
        let refused = |limit, what: String| Err(sandbox.limited(&policy, limit, what));
        if let Some(most) = limits.connections.filter(|most| state.permits >= *most) {
            return refused(
                "connections",
                format!("the sandbox has {most} connections open, and may have no more"),
            );
        }
        let rate = limits.connections_per_second.unwrap_or(u32::MAX);
        if !state.arrivals.take_one(f64::from(rate), Instant::now()) {
            return refused(
                "connections_per_second",
                format!("the sandbox may make {rate} connections a second"),
            );
        }
        if let Some(daily) = limits.owner_daily_bytes.filter(|daily| !sandbox.owner.has_left(*daily)) {
            return refused("owner_daily_bytes", spent(daily));
        }
        if let Some(rate) = limits.owner_connections_per_second.filter(|rate| !sandbox.owner.arrives(*rate)) {
            return refused(
                "owner_connections_per_second",
                format!("the owner's sandboxes may make {rate} connections a second here"),
            );
        }
        let most = limits.owner_connections.unwrap_or(usize::MAX);
        if !count_in(&sandbox.owner.connections, most) {
            return refused(
                "owner_connections",
                format!("the owner's sandboxes have {most} connections open here"),
            );
        }
        if !count_in(&sandbox.common.connections, sandbox.common.max_connections) {
            sandbox.owner.connections.fetch_sub(1, Ordering::Relaxed);
            return refused("replica", "this egress replica has no room for more connections".to_owned());
        }
        state.permits += 1;
        Ok(Self(Arc::clone(sandbox)))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.lock().permits -= 1;
        self.0.owner.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.common.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one in, if there are fewer than `most`.
fn count_in(count: &AtomicUsize, most: usize) -> bool {
    let more = |now: usize| (now < most).then_some(now + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}
