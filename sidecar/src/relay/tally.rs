//! What the relay tells the sidecar: how much it has refused, and that it takes links.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::control::{Control, Report};

/// At least this long between two reports, so that a flood of connections is no flood of messages to the sidecar.
const PAUSE: Duration = Duration::from_millis(50);

/// Counts since the relay's start.
#[derive(Debug, Default)]
pub(super) struct Tally {
    refused: AtomicU64,
    links: AtomicU64,
    changed: Notify,
}

impl Tally {
    /// Counts a connection that was refused for want of a link.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
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
            control.report(report);
            sleep(PAUSE).await;
        }
    }
}
