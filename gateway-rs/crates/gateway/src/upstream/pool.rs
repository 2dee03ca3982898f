use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Uri;
use resolve::Route;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::agent::agent_client::AgentClient;

use super::channel::Channel;
use super::link::{Link, Unreachable};
use crate::telemetry::Metrics;
use crate::transport::Dialer;

/// Largest message in either direction: two outputs of 16 MiB, or stdin of 16 MiB and 6 MiB of arguments, and what
/// surrounds them.
const MAX_MESSAGE_BYTES: usize = 40 << 20;

/// The links of all sandboxes that are in use.
#[derive(Debug)]
pub(crate) struct Pool {
    links: Mutex<HashMap<Arc<str>, Arc<Link>>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) dialer: Arc<Dialer>,
    /// One task per open connection; ends with it.
    pub(super) drivers: TaskTracker,
    /// When cancelled, every driver ends.
    pub(super) closing: CancellationToken,
}

/// The right to use a sandbox's connection; while one is held the connection is not closed for being idle.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(super) pool: Arc<Pool>,
    pub(super) link: Arc<Link>,
}

impl Pool {
    pub(crate) fn new(metrics: Arc<Metrics>, dialer: Arc<Dialer>) -> Arc<Self> {
        Arc::new(Self {
            links: Mutex::default(),
            metrics,
            dialer,
            drivers: TaskTracker::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Returns stubs for the sidecar at the end of `route`. Opens no connection yet.
    pub(crate) fn agent(self: &Arc<Self>, route: &Arc<Route>) -> AgentClient<Channel> {
        // Sidecars ignore the authority; a unix socket has none.
        let origin = Uri::from_static("http://sandbox");
        AgentClient::with_origin(Channel::new(self.lease(route)), origin)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Whether the sidecar at the end of `route` accepts connections; an open one counts. Takes as long as an attempt
    /// to connect.
    ///
    /// # Errors
    /// [`Unreachable`]
    pub(crate) async fn reach(self: &Arc<Self>, route: &Arc<Route>) -> Result<(), Unreachable> {
        let lease = self.lease(route);
        lease.link.sender(self).await.map(drop)
    }

    /// Closes all connections and waits until they are closed.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.drivers.close();
        self.drivers.wait().await;
    }

    /// Open connections.
    pub(crate) fn connections(&self) -> usize {
        self.drivers.len()
    }

    fn lease(self: &Arc<Self>, route: &Arc<Route>) -> Lease {
        let mut links = self.lock();
        let held = links.get(&route.sandbox_id).filter(|link| link.route.is_same(route));
        let link = match held {
            Some(link) => Arc::clone(link),
            None => {
                let link = Arc::new(Link::new(Arc::clone(route)));
                // A call that still holds an old route must not replace the link of the new one.
                if route.is_current() {
                    links.insert(Arc::clone(&route.sandbox_id), Arc::clone(&link));
                }
                link
            }
        };
        link.count_in();
        Lease { pool: Arc::clone(self), link }
    }

    pub(super) fn forget(&self, link: &Arc<Link>) {
        let mut links = self.lock();
        if links.get(&link.route.sandbox_id).is_some_and(|held| Arc::ptr_eq(held, link)) {
            links.remove(&link.route.sandbox_id);
        }
    }

    /// Removes the link if it is idle; returns whether it was.
    pub(super) fn forget_if_idle(&self, link: &Arc<Link>) -> bool {
        let mut links = self.lock();
        let idle = link.is_idle();
        if idle && links.get(&link.route.sandbox_id).is_some_and(|held| Arc::ptr_eq(held, link)) {
            links.remove(&link.route.sandbox_id);
        }
        idle
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        self.link.count_in();
        Self { pool: Arc::clone(&self.pool), link: Arc::clone(&self.link) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.link.count_out();
        // A link whose connection broke, or was never opened, has no driver that would remove it.
        if self.link.is_idle() && !self.link.is_open() {
            self.pool.forget_if_idle(&self.link);
        }
    }
}
