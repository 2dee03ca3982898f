//! Checks that DNS agrees with the pushed routes: looks up a sample of the new routes, off the path of the calls.
//!
//! The DNS fallback is needed rarely. Without these checks a broken fallback would be found only when it is needed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use resolve::{Dns, Route, Source};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::telemetry::{DnsCheck, Metrics};

/// Routes that may wait for their check; further ones are not checked.
const QUEUE: usize = 256;

/// Delay of a check: a busy kubelet tells a pod's address some seconds after the push, and the control plane writes names
/// of a herd every three. With 5 s two of three names were not there yet on a node of two cores under a load of 34.
const DELAY: Duration = Duration::from_secs(15);

/// Look-ups of a name that is not there yet, each a delay after the one before: a control plane that is late with its
/// names is no wrong DNS, and only what is missing after the last one counts.
const LOOKS: u32 = 4;

/// Pause between checks: at most ten look-ups a second.
const PAUSE: Duration = Duration::from_millis(100);

/// Timeout of a look-up; a healthy name server answers sooner.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Accepts routes to check.
#[derive(Debug)]
pub(crate) struct Checks {
    queue: mpsc::Sender<Waiting>,
}

/// The queue that [`run`] processes.
pub(crate) type Queue = mpsc::Receiver<Waiting>;

#[derive(Debug)]
pub(crate) struct Waiting {
    route: Arc<Route>,
    due: Instant,
    looks: u32,
}

impl Checks {
    pub(crate) fn new() -> (Self, Queue) {
        let (sender, queue) = mpsc::channel(QUEUE);
        (Self { queue: sender }, queue)
    }

    /// Queues a pushed route for its check if there is room. Never waits.
    pub(crate) fn offer(&self, route: Arc<Route>) {
        if route.source == Source::Table {
            // Ignored when the queue is full: only a sample is checked.
            let _ = self.queue.try_send(Waiting { route, due: Instant::now() + DELAY, looks: 1 });
        }
    }
}

/// Checks one route after the other until it, or the [`Checks`] that fills the queue, is dropped.
pub(crate) async fn run(dns: &Dns, metrics: &Metrics, mut queue: Queue) {
    let mut late = VecDeque::new();
    while let Some(Waiting { route, due, looks }) = next(&mut queue, &mut late).await {
        sleep_until(due).await;
        // The sandbox may have ended meanwhile; then there is nothing to compare.
        if !route.is_current() {
            continue;
        }
        let outcome = check(dns, &route).await;
        if outcome == DnsCheck::Disagree {
            tracing::warn!(sandbox_id = %route.sandbox_id, address = %route.address, "DNS disagrees with pushed route");
        }
        if outcome == DnsCheck::Absent && looks < LOOKS && late.len() < QUEUE {
            late.push_back(Waiting { route, due: Instant::now() + DELAY, looks: looks + 1 });
        } else if route.is_current() {
            metrics.dns_check(outcome);
        }
        sleep(PAUSE).await;
    }
}

/// The next check: of a name that was late if that is due, else of a new route.
async fn next(queue: &mut Queue, late: &mut VecDeque<Waiting>) -> Option<Waiting> {
    let Some(first) = late.front() else { return queue.recv().await };
    let new = tokio::select! {
        biased;
        () = sleep_until(first.due) => None,
        new = queue.recv() => new,
    };
    new.or_else(|| late.pop_front())
}

async fn check(dns: &Dns, route: &Route) -> DnsCheck {
    match timeout(TIMEOUT, dns.addresses(&route.sandbox_id)).await {
        Ok(Ok(addresses)) if addresses.contains(&route.address) => DnsCheck::Agree,
        Ok(Ok(_)) => DnsCheck::Disagree,
        Ok(Err(failed)) if failed.absent => DnsCheck::Absent,
        Ok(Err(_)) | Err(_) => DnsCheck::Error,
    }
}

#[cfg(test)]
mod tests;
