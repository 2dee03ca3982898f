use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{Bucket, Daily};
use crate::report::now_ms;

const DAY_MS: u64 = 86_400_000;

/// What all sandboxes of an owner use together at this replica. Its limits come with the policy of each sandbox.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Open ones.
    pub(super) connections: AtomicUsize,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    arrivals: Bucket,
    flow: Bucket,
    today: Daily,
}

impl Default for Owner {
    fn default() -> Self {
        let now = Instant::now();
        let used =
            Used { arrivals: Bucket::brimming(now), flow: Bucket::brimming(now), today: Daily::default() };
        Self { connections: AtomicUsize::default(), used: Mutex::new(used) }
    }
}

impl Owner {
    /// Counts a new connection; returns whether it is one of so many a second.
    pub(super) fn arrives(&self, rate: u32) -> bool {
        self.lock().arrivals.take_one(f64::from(rate), Instant::now())
    }

    /// Whether something is left of a day's budget.
    pub(super) fn has_left(&self, daily_bytes: u64) -> bool {
        self.lock().today.is_left(daily_bytes, today())
    }

    /// Whether it would be wrong to forget it: it would have its budget anew.
    pub(crate) fn has_used_today(&self) -> bool {
        self.lock().today.is_used(today())
    }

    /// Counts data towards the limits that are not 0; returns how long to wait before more, or `None` once the day's
    /// budget is used up.
    #[allow(
        clippy::cast_precision_loss,
        reason = "rates are far below 2^53, above which neighbours become one"
    )]
    pub(super) fn moved(&self, bytes: u64, bytes_per_second: u64, daily_bytes: u64) -> Option<Duration> {
        let mut used = self.lock();
        if daily_bytes > 0 && !used.today.take(bytes, daily_bytes, today()) {
            return None;
        }
        if bytes_per_second == 0 {
            return Some(Duration::ZERO);
        }
        Some(used.flow.take(bytes as f64, bytes_per_second as f64, Instant::now()))
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Days since the Unix epoch, by this machine's clock: a budget's day is one of UTC.
fn today() -> u64 {
    u64::try_from(now_ms()).unwrap_or_default() / DAY_MS
}
