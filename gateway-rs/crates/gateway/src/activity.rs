//! What is in use, told to the control plane behind the calls, so that it need not ask each sandbox.
//!
//! A call marks its route (one atomic write); what is under way is known from the places that it holds. A report that is
//! lost is made again: none of it is needed for an exec, and its absence ends nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resolve::Directory;
use tokio::time::Instant;
use tonic::{Code, Status};
use wire::routes::routes_client::RoutesClient;
use wire::routes::{ActivityReport, Used};

use crate::admission::Admission;
use crate::feed::Sender;

/// Also when there is nothing to tell (contract: routes.proto): who reports is there for callers.
const EVERY: Duration = Duration::from_secs(5);

/// The control plane notes it in memory.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sandboxes in one message: half a megabyte.
const MOST_TOLD: usize = 10_000;

/// What was in use and has not been told.
#[derive(Debug)]
pub(crate) struct Activity {
    directory: Arc<Directory>,
    gates: Vec<Arc<Admission>>,
    /// By sandbox, when it was seen last. As many as there were routes since the last report.
    untold: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Activity {
    /// Of calls that mark the routes of `directory` and hold places of `gates`.
    pub(crate) fn new(directory: Arc<Directory>, gates: Vec<Arc<Admission>>) -> Self {
        Self { directory, gates, untold: Mutex::default() }
    }

    /// Reports for as long as it is not dropped.
    pub(crate) async fn report(&self, mut client: RoutesClient<Sender>, gateway_id: &str) -> Infallible {
        loop {
            self.look();
            match self.tell(&mut client, gateway_id).await {
                Err(status) if status.code() == Code::Unimplemented => {
                    tracing::info!(
                        "the control plane takes no reports of use: it is older than this gateway"
                    );
                    return std::future::pending().await;
                }
                Err(status) => {
                    tracing::warn!(reason = status.message(), "use not reported, it will be again")
                }
                Ok(()) => {}
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn look(&self) {
        let now = Instant::now();
        let under_way = self.gates.iter().flat_map(|gate| gate.sandboxes());
        let used: Vec<_> = self.directory.take_used().into_iter().chain(under_way).collect();
        self.lock().extend(used.into_iter().map(|id| (id, now)));
    }

    async fn tell(&self, client: &mut RoutesClient<Sender>, gateway_id: &str) -> Result<(), Status> {
        let seen: Vec<(Arc<str>, Instant)> =
            self.lock().iter().map(|(id, at)| (Arc::clone(id), *at)).collect();
        let mut parts = seen.chunks(MOST_TOLD);
        let mut part = parts.next().unwrap_or_default();
        loop {
            let report = ActivityReport { gateway_id: gateway_id.to_owned(), used: used(part) };
            let taken = tokio::time::timeout(DEADLINE, client.report(report)).await;
            taken.map_err(|_| Status::deadline_exceeded("no answer"))??;
            // What was used again while this was under way is told the next time.
            let mut untold = self.lock();
            for (id, told_at) in part {
                if untold.get(id).is_some_and(|at| at == told_at) {
                    untold.remove(id);
                }
            }
            drop(untold);
            match parts.next() {
                Some(next) => part = next,
                None => return Ok(()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn used(seen: &[(Arc<str>, Instant)]) -> Vec<Used> {
    let since_us = |at: &Instant| u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
    seen.iter().map(|(id, at)| Used { sandbox_id: id.to_string(), since_us: since_us(at) }).collect()
}
