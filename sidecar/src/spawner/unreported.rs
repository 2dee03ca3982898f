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
    report: Report,
    at: Instant,
}

impl UnreportedStarts {
    /// Notes the report that command `id` has started.
    pub(super) fn add(&mut self, id: u64, report: Report, at: Instant) {
        self.starts.push_back(Start { id, report, at });
    }

    /// Takes the report of the start of `id`, if it has not been sent.
    pub(super) fn take(&mut self, id: u64) -> Option<Report> {
        let at = self.starts.iter().position(|start| start.id == id)?;
        self.starts.remove(at).map(|start| start.report)
    }

    /// The next report that has waited long enough.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Report> {
        self.due().filter(|due| *due <= now)?;
        self.starts.pop_front().map(|start| start.report)
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
        let report = |id| Report::Spawned { id, pid: 11, began_us: 7 };
        assert_eq!((unreported.due(), unreported.take(1)), (None, None));
        unreported.add(1, report(1), began);
        unreported.add(2, report(2), began + Duration::from_millis(1));
        unreported.add(3, report(3), began + Duration::from_millis(2));
        assert_eq!(unreported.take(2), Some(report(2)));
        assert_eq!((unreported.take(2), unreported.overdue(began + Duration::from_millis(3))), (None, None));
        assert_eq!(unreported.due(), Some(began + REPORT_DELAY));
        let later = began + REPORT_DELAY;
        assert_eq!(unreported.overdue(later), Some(report(1)));
        assert_eq!((unreported.overdue(later), unreported.take(3)), (None, Some(report(3))));
    }
}
