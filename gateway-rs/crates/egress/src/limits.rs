//! Rates, as buckets that fill with time. Pure: the time is an argument.

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
    fn what_is_used_ahead_is_waited_for() {
        let start = Instant::now();
        let mut bucket = Bucket::full(1000.0, start);
        assert_eq!(bucket.take(1000.0, 1000.0, start), Duration::ZERO);
        assert_eq!(bucket.take(500.0, 1000.0, start), Duration::from_millis(500));
        assert_eq!(bucket.take(0.0, 1000.0, start + Duration::from_millis(500)), Duration::ZERO);
    }
}
