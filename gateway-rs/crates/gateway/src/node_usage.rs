//! What the node of a sandbox says that it has used: asked of the control plane, over the connection of the route feed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use program::grpc::Sender;
use wire::routes::UsageRequest;
use wire::routes::routes_client::RoutesClient;

/// The control plane answers within 2 s (contract: routes.proto).
const DEADLINE: Duration = Duration::from_secs(3);

/// Asks as long as the feed is connected.
#[derive(Debug, Default)]
pub(crate) struct NodeUsage {
    client: Mutex<Option<RoutesClient<Sender>>>,
}

impl NodeUsage {
    /// Takes the connection of a feed, or its loss.
    pub(crate) fn connected(&self, client: Option<RoutesClient<Sender>>) {
        *self.lock() = client;
    }

    /// Returns the time on processors of a sandbox, in microseconds; `None`: nobody says it.
    pub(crate) async fn cpu_us(&self, sandbox_id: &str) -> Option<u64> {
        let mut client = self.lock().clone()?;
        let asked = client.usage(UsageRequest { sandbox_id: sandbox_id.to_owned() });
        match tokio::time::timeout(DEADLINE, asked).await {
            Ok(Ok(told)) => told.into_inner().cpu_us,
            Ok(Err(status)) => {
                tracing::debug!(
                    sandbox_id,
                    reason = status.message(),
                    "the CPU time of a sandbox is not known"
                );
                None
            }
            Err(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<RoutesClient<Sender>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
