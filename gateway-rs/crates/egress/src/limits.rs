//! Rates, as buckets that fill with time, and budgets of a day. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// What may be used now, and becomes more with time: `rate` a second, at most a second's worth.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// May be negative: what was used ahead of its time.
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A full one, whatever its rate will be.
    pub(crate) fn brimming(now: Instant) -> Self {
        Self::full(f64::MAX, now)
    }

    /// A full one.
    pub(crate) fn full(rate: f64, now: Instant) -> Self {
        Self { left: rate, at: now }
    }

    fn fill(&mut self, rate: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate).min(rate);
        self.at = now;
    }

    /// Uses one; returns whether it was there.
    pub(crate) fn take_one(&mut self, rate: f64, now: Instant) -> bool {
        self.fill(rate, now);
        let there = self.left >= 1.0;
        if there {
            self.left -= 1.0;
        }
        there
    }

    /// Uses an amount, whether it is there or not; returns how long to wait until it would have been.
    pub(crate) fn take(&mut self, amount: f64, rate: f64, now: Instant) -> Duration {
        self.fill(rate, now);
        self.left -= amount;
        Duration::try_from_secs_f64(-self.left / rate).unwrap_or_default()
    }
}

/// What was used of a day's budget.
#[derive(Debug, Default)]
pub(crate) struct Daily {
    /// Days since the Unix epoch.
    day: u64,
    used: u64,
}

impl Daily {
    /// Counts an amount; returns whether no more than `most` were used today. A clock that goes back to an earlier day
    /// gives no new budget: it counts for the latest day that was seen.
    pub(crate) fn take(&mut self, amount: u64, most: u64, today: u64) -> bool {
        if today > self.day {
            (self.day, self.used) = (today, 0);
        }
        self.used = self.used.saturating_add(amount);
        self.used <= most
    }

    /// Whether anything was used today.
    pub(crate) fn is_used(&self, today: u64) -> bool {
        self.used > 0 && today <= self.day
    }

    /// Whether something is left of it.
    pub(crate) fn is_left(&self, most: u64, today: u64) -> bool {
        today > self.day || self.used < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_second_of_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(3.0, start);
        let taken = |bucket: &mut Bucket, now| (0..10).filter(|_| bucket.take_one(3.0, now)).count();
        assert_eq!(taken(&mut bucket, start), 3);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(700)), 2);
        assert_eq!(taken(&mut bucket, start + Duration::from_secs(100)), 3);
        // A clock that goes back gives nothing.
        assert_eq!(taken(&mut bucket, start), 0);
    }

    #[test]
    fn one_that_brims_has_a_second_of_whatever_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::brimming(start);
        assert_eq!((0..10).filter(|_| bucket.take_one(2.0, start)).count(), 2);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..10).filter(|_| bucket.take_one(5.0, later)).count(), 5, "a raised rate holds at once");
    }

    #[test]
    fn a_budget_is_new_every_day_and_not_for_a_clock_that_jumps_back() {
        let mut daily = Daily::default();
        assert!(daily.take(60, 100, 7) && daily.take(40, 100, 7));
        assert!(!daily.is_left(100, 7) && !daily.take(1, 100, 7));
        assert!(daily.is_left(1000, 7), "a raised budget holds at once");
        assert!(daily.is_left(100, 8) && daily.take(100, 100, 8));
        assert!(!daily.is_left(100, 7) && !daily.take(1, 100, 7));
        assert!(daily.is_used(7) && daily.is_used(8) && !daily.is_used(9));
        assert!(!daily.take(u64::MAX, 100, 8) && daily.take(1, 100, 9));
    }

    #[test]
    fn what_is_used_ahead_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::full(1000.0, start);
        assert_eq!(bucket.take(1000.0, 1000.0, start), Duration::ZERO);
        assert_eq!(bucket.take(500.0, 1000.0, start), Duration::from_millis(500));
        assert_eq!(bucket.take(0.0, 1000.0, start + Duration::from_millis(500)), Duration::ZERO);
    }
}
