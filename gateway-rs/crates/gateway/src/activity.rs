//! Reports to the control plane which sandboxes are in use, off the path of the calls, so that the control plane need
//! not query each sandbox.
//!
//! A call marks its route (one atomic write); calls under way are found through the admission permits that they hold.
//! A report that is lost is sent again: no exec needs it, and a missing report never ends a sandbox.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resolve::Directory;
use tokio::time::Instant;
use tonic::Status;
use wire::routes::routes_client::RoutesClient;
use wire::routes::{ActivityReport, Used};

use crate::admission::Admission;
use program::grpc::Sender;

/// Sent even when no sandbox was in use (contract: routes.proto): a report also shows that this gateway serves
/// callers.
const EVERY: Duration = Duration::from_secs(5);

/// Timeout of one report, which the control plane only keeps in memory.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sandboxes in one report: half a megabyte.
const MAX_REPORTED: usize = 10_000;

/// Sandboxes that were in use and are not reported yet.
#[derive(Debug)]
pub(crate) struct Activity {
    directory: Arc<Directory>,
    gates: Vec<Arc<Admission>>,
    /// By sandbox: when its use was last seen. At most as many as there were routes since the last report.
    unreported: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Activity {
    /// Creates the record of calls that mark the routes of `directory` and hold permits of `gates`.
    pub(crate) fn new(directory: Arc<Directory>, gates: Vec<Arc<Admission>>) -> Self {
        Self { directory, gates, unreported: Mutex::default() }
    }

    /// Sends reports until it is dropped.
    pub(crate) async fn report(&self, mut client: RoutesClient<Sender>, gateway_id: &str) -> Infallible {
        loop {
            self.collect();
            if let Err(status) = self.send(&mut client, gateway_id).await {
                tracing::warn!(reason = status.message(), "activity not reported, retrying");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn collect(&self) {
        let now = Instant::now();
        let under_way = self.gates.iter().flat_map(|gate| gate.sandboxes());
        let used: Vec<_> = self.directory.take_used().into_iter().chain(under_way).collect();
        self.lock().extend(used.into_iter().map(|id| (id, now)));
    }

    async fn send(&self, client: &mut RoutesClient<Sender>, gateway_id: &str) -> Result<(), Status> {
        let seen: Vec<(Arc<str>, Instant)> =
            self.lock().iter().map(|(id, at)| (Arc::clone(id), *at)).collect();
        let mut parts = seen.chunks(MAX_REPORTED);
        let mut part = parts.next().unwrap_or_default();
        loop {
            let report = ActivityReport { gateway_id: gateway_id.to_owned(), used: used(part) };
            let taken = tokio::time::timeout(DEADLINE, client.report(report)).await;
            taken.map_err(|_| Status::deadline_exceeded("no answer"))??;
            // A sandbox that was used again while this report was under way is reported the next time.
            let mut unreported = self.lock();
            for (id, reported_at) in part {
                if unreported.get(id).is_some_and(|at| at == reported_at) {
                    unreported.remove(id);
                }
            }
            drop(unreported);
            match parts.next() {
                Some(next) => part = next,
                None => return Ok(()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn used(seen: &[(Arc<str>, Instant)]) -> Vec<Used> {
    let since_us = |at: &Instant| u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
    seen.iter().map(|(id, at)| Used { sandbox_id: id.to_string(), since_us: since_us(at) }).collect()
}
