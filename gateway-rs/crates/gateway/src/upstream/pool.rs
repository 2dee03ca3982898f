use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resolve::Route;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::link::{Connection, Link, Sender, Unreachable, connect};
use crate::telemetry::{Connects, Metrics};
use program::transport::Dialer;

/// A connection that has no calls at two checks in a row, this far apart, nor between them, is closed: an idle sandbox
/// costs a table row. Opening one costs about 0.2 ms on a unix socket.
const IDLE: Duration = Duration::from_secs(60);

/// The links of all sandboxes that are in use.
#[derive(Debug)]
pub(crate) struct Pool {
    links: Mutex<HashMap<Arc<str>, Arc<Link>>>,
    metrics: Arc<Metrics>,
    dialer: Arc<Dialer>,
    /// One task per open connection; ends with it.
    drivers: TaskTracker,
    /// When cancelled, every driver ends.
    closing: CancellationToken,
}

/// The right to use a sandbox's connection; while one is held the connection is not closed for being idle.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<Pool>,
    link: Arc<Link>,
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

    /// Whether the sidecar at the end of `route` accepts connections; an open one counts. Takes as long as an attempt
    /// to connect.
    ///
    /// # Errors
    /// [`Unreachable`]
    pub(crate) async fn reach(self: &Arc<Self>, route: &Arc<Route>) -> Result<(), Unreachable> {
        self.lease(route).sender().await.map(drop)
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

    /// Returns the right to use the connection of `route`, which is not opened yet.
    pub(super) fn lease(self: &Arc<Self>, route: &Arc<Route>) -> Lease {
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

    /// Opens the connection of a link, and drives it from then on.
    async fn open(self: &Arc<Self>, link: &Arc<Link>) -> Result<Sender, Unreachable> {
        let connected = connect(&self.dialer, &link.route.address).await;
        self.metrics.connect(if connected.is_ok() { Connects::Connected } else { Connects::Failed });
        let (sender, connection) = connected?;
        self.drivers.spawn(drive(Arc::clone(self), Arc::clone(link), connection));
        Ok(sender)
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut links = self.lock();
        if links.get(&link.route.sandbox_id).is_some_and(|held| Arc::ptr_eq(held, link)) {
            links.remove(&link.route.sandbox_id);
        }
    }

    /// Removes the link if it is idle; returns whether it was.
    fn forget_if_idle(&self, link: &Arc<Link>) -> bool {
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

impl Lease {
    /// Returns the connection, which is opened if there is none.
    ///
    /// # Errors
    /// [`Unreachable`] when no attempt succeeded before the deadline.
    ///
    /// # Cancel safety
    /// Cancel safe: the next caller that waits continues.
    pub(super) async fn sender(&self) -> Result<Sender, Unreachable> {
        self.link.sender(self.pool.open(&self.link)).await
    }

    /// Sends nothing more over the present connection; calls on it continue.
    pub(super) fn retire(&self) {
        self.link.retire();
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

/// Drives the connection until it breaks, the route ends or it has been idle for a while.
async fn drive(pool: Arc<Pool>, link: Arc<Link>, connection: Connection) {
    let (mut connection, mut over) = (std::pin::pin!(connection), std::pin::pin!(link.route.over()));
    // The number of uses at the latest check; `None` when there was a call.
    let mut idle_since = None;
    loop {
        tokio::select! {
            // The calls on the connection get the reason, each as its own error.
            _ = &mut connection => return,
            _ = &mut over => return pool.forget(&link),
            () = pool.closing.cancelled() => return,
            () = tokio::time::sleep(IDLE) => {
                let uses = link.uses();
                if idle_since == Some(uses) && pool.forget_if_idle(&link) {
                    return;
                }
                idle_since = link.is_idle().then_some(uses);
            }
        }
    }
}
