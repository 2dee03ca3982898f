//! Whether DNS says what was pushed: a sample of new routes, looked up beside the path of the calls.
//!
//! The fallback is needed rarely. Without this it would be found broken in the moment when it is.

use std::sync::Arc;
use std::time::Duration;

use resolve::{Dns, Route, Source};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::telemetry::{DnsCheck, Metrics};

/// Routes that wait for their check; further ones are left out.
const QUEUE: usize = 256;

/// A name appears when Kubernetes has told its name server of the pod, a second or two after the push (guess).
const SETTLE: Duration = Duration::from_secs(5);

/// At most ten look-ups a second.
const PAUSE: Duration = Duration::from_millis(100);

/// A name server that takes longer is not well.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes routes to be checked.
#[derive(Debug)]
pub(crate) struct Checks {
    queue: mpsc::Sender<Waiting>,
}

/// What [`run`] works on.
pub(crate) type Queue = mpsc::Receiver<Waiting>;

#[derive(Debug)]
pub(crate) struct Waiting {
    route: Arc<Route>,
    due: Instant,
}

impl Checks {
    pub(crate) fn new() -> (Self, Queue) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (Self { queue: sender }, queue)
    }

    /// Has a pushed route checked when there is room. Never waits.
    pub(crate) fn offer(&self, route: Arc<Route>) {
        if route.source == Source::Table {
            // A full queue: it is a sample.
            let _ = self.queue.try_send(Waiting { route, due: Instant::now() + SETTLE });
        }
    }
}

/// Checks one route after the other for ever; the owner drops it.
pub(crate) async fn run(dns: &Dns, metrics: &Metrics, mut queue: Queue) {
    while let Some(Waiting { route, due }) = queue.recv().await {
        sleep_until(due).await;
        // Sandboxes may live for less than that: nothing to be compared.
        if !route.is_current() {
            continue;
        }
        let outcome = check(dns, &route).await;
        if route.is_current() {
            metrics.dns_check(outcome);
        }
        if outcome == DnsCheck::Disagree {
            tracing::warn!(sandbox_id = %route.sandbox_id, address = %route.address, "DNS names another address");
        }
        sleep(PAUSE).await;
    }
}

async fn check(dns: &Dns, route: &Route) -> DnsCheck {
    match timeout(PATIENCE, dns.addresses(&route.sandbox_id)).await {
        Ok(Ok(addresses)) if addresses.contains(&route.address) => DnsCheck::Agree,
        Ok(Ok(_)) => DnsCheck::Disagree,
        Ok(Err(failed)) if failed.absent => DnsCheck::Absent,
        Ok(Err(_)) | Err(_) => DnsCheck::Error,
    }
}

#[cfg(test)]
mod tests;
