//! What the relay tells the sidecar: how much it has refused and which hosts, and that it takes links.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::control::{Control, Denied, Report};
use super::refusal::Refusal;
use super::wanted::Wanted;

/// At least this long between two reports, so that a flood of connections is no flood of messages to the sidecar.
const PAUSE: Duration = Duration::from_millis(50);
/// Hosts of one report; further ones of such a time are counted, and not named.
const MOST_DENIED: usize = 32;

/// Counts since the relay's start.
#[derive(Debug, Default)]
pub(super) struct Tally {
    refused: AtomicU64,
    links: AtomicU64,
    /// Since the last report.
    denied: Mutex<Vec<Denied>>,
    changed: Notify,
}

impl Tally {
    /// Counts a connection that was refused for want of a link; with the host, if it has named one.
    pub(super) fn refused(&self, wanted: Option<Wanted>, refusal: Refusal) {
        if let Some(wanted) = wanted {
            self.note(wanted, refusal == Refusal::Unavailable);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn note(&self, wanted: Wanted, lost: bool) {
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = denied.iter_mut().find(|one| one.wanted == wanted && one.lost == lost) {
            one.count = one.count.saturating_add(1);
        } else if denied.len() < MOST_DENIED {
            denied.push(Denied { wanted, lost, count: 1 });
        }
    }

    fn take(&self) -> Vec<Denied> {
        std::mem::take(&mut *self.denied.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a link that was taken.
    pub(super) fn link(&self) {
        self.links.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Reports every change.
    pub(super) async fn report(&self, control: &Control) -> Infallible {
        loop {
            self.changed.notified().await;
            let report = Report {
                refused: self.refused.load(Ordering::Relaxed),
                links: self.links.load(Ordering::Relaxed),
            };
            // First, so that what is counted is on record.
            for denied in self.take() {
                control.denied(&denied);
            }
            control.report(report);
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wanted::Protocol;
    use super::*;

    #[test]
    fn of_a_flood_the_first_hosts_are_named_and_equal_ones_are_one() {
        let tally = Tally::default();
        let wanted = |host: &str| Wanted::new(Protocol::Http, host.as_bytes(), 80);
        for n in 0..1000 {
            tally.refused(wanted("a"), Refusal::Offline);
            tally.refused(wanted(&format!("h{n}")), Refusal::Offline);
            tally.refused(None, Refusal::Offline);
        }
        tally.refused(wanted("a"), Refusal::Unavailable);
        let denied = tally.take();
        assert_eq!(
            (denied.len(), denied[0].count, denied[31].wanted.host.as_str()),
            (MOST_DENIED, 1000, "h30")
        );
        assert_eq!(tally.refused.load(Ordering::Relaxed), 3001);
        tally.refused(wanted("a"), Refusal::Unavailable);
        assert_eq!(tally.take(), [Denied { wanted: wanted("a").unwrap(), lost: true, count: 1 }]);
    }
}
