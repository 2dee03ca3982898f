use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::call::Calls;

/// What connections to ports share.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    pub(super) calls: Arc<Calls>,
    pub(super) gate: Arc<Admission>,
    /// One task per connection; they end by themselves when the drain expires.
    pub(super) tunnels: TaskTracker,
    /// The domain below which ports have host names.
    pub(super) domain: Option<Arc<str>>,
}

impl Ports {
    /// Connections that take their permits from `gate` and run in `tunnels`.
    pub(crate) fn new(
        calls: Arc<Calls>,
        gate: Arc<Admission>,
        tunnels: TaskTracker,
        domain: Option<Arc<str>>,
    ) -> Self {
        Self { calls, gate, tunnels, domain }
    }
}
