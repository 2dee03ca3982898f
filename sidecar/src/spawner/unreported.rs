//! Starts that have not been reported to the sidecar yet. Pure.
//!
//! Most commands end within milliseconds. Under gVisor each message that wakes the sidecar costs as much as several
//! system calls, so the report of a start waits a moment for the end, and both go in one message.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::frame::Report;

/// Longer than a small command takes, and too short to be noticed. Until then the command's output stays in its pipes,
/// and no caller can signal it.
const REPORT_DELAY: Duration = Duration::from_millis(10);

/// Oldest first; at most one for each command.
#[derive(Debug, Default)]
pub(super) struct UnreportedStarts {
    starts: VecDeque<Start>,
}

#[derive(Debug)]
struct Start {
    id: u64,
    pid: u32,
    at: Instant,
}

impl Start {
    fn report(&self, now: Instant) -> Report {
        let age = now.saturating_duration_since(self.at).as_micros();
        Report::Spawned { id: self.id, pid: self.pid, age_us: u32::try_from(age).unwrap_or(u32::MAX) }
    }
}

impl UnreportedStarts {
    /// Notes that command `id` has started as process `pid`.
    pub(super) fn add(&mut self, id: u64, pid: u32, at: Instant) {
        self.starts.push_back(Start { id, pid, at });
    }

    /// Takes the report of the start of `id`, if it has not been sent.
    pub(super) fn take(&mut self, id: u64, now: Instant) -> Option<Report> {
        let at = self.starts.iter().position(|start| start.id == id)?;
        self.starts.remove(at).map(|start| start.report(now))
    }

    /// The next report that has waited long enough.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Report> {
        self.due().filter(|due| *due <= now)?;
        self.starts.pop_front().map(|start| start.report(now))
    }

    /// When the next report is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.starts.front().map(|start| start.at + REPORT_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_told_once_with_its_end_or_after_a_moment() {
        let (mut unreported, began) = (UnreportedStarts::default(), Instant::now());
        assert_eq!((unreported.due(), unreported.take(1, began)), (None, None));
        unreported.add(1, 11, began);
        unreported.add(2, 12, began + Duration::from_millis(1));
        unreported.add(3, 13, began + Duration::from_millis(2));
        let now = began + Duration::from_millis(3);
        assert_eq!(unreported.take(2, now), Some(Report::Spawned { id: 2, pid: 12, age_us: 2000 }));
        assert_eq!((unreported.take(2, now), unreported.overdue(now)), (None, None));
        assert_eq!(unreported.due(), Some(began + REPORT_DELAY));
        let later = began + REPORT_DELAY;
        assert_eq!(unreported.overdue(later), Some(Report::Spawned { id: 1, pid: 11, age_us: 10_000 }));
        assert_eq!((unreported.overdue(later), unreported.take(3, later).is_some()), (None, true));
    }
}
