use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::{Address, Applied, Route, Table, Tombstone, Update, table};

/// Ids that calls may wait for at one time. Tokens are signed, so clients cannot make ids up; an estimate that leaves
/// room for a burst of sandboxes that are ready before their push. Beyond it an unknown id is answered at once.
const MAX_AWAITED_IDS: usize = 4_096;

/// A route that is younger may be missing in the snapshot of another replica of the control plane, which receives it a
/// moment after the replica that pushed it. An estimate: hundreds of times that moment.
const FRESH: Duration = Duration::from_secs(5);

/// Rows that are applied under one lock: about a millisecond during which look-ups wait.
const PART: usize = 1_000;

/// The route table as all calls share it: readers never wait for each other, and a call can wait until an id appears.
#[derive(Debug, Default)]
pub struct Directory {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    /// One notifier per id that calls wait for; used and removed when the id appears.
    awaited: HashMap<Arc<str>, Arc<Notify>>,
    /// Fresh routes that the latest snapshot does not name: they are dropped unless an update names them soon.
    unconfirmed: HashSet<Arc<str>>,
}

/// What the table knows of an id.
#[derive(Debug, Clone)]
pub enum Found {
    /// The sandbox runs; this is its route.
    Live(Arc<Route>),
    /// The sandbox has ended.
    Ended(Arc<Tombstone>),
    /// Neither a route nor an end is known.
    Unknown,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what is known of a sandbox. Cost: one shared lock and one or two look-ups.
    pub fn find(&self, sandbox_id: &str) -> Found {
        self.read().find(sandbox_id)
    }

    /// Returns the route of a sandbox whose `port` is public. Cost: that of [`Self::find`].
    pub fn public(&self, sandbox_id: &str, port: u16) -> Option<Arc<Route>> {
        match self.find(sandbox_id) {
            Found::Live(route) if route.ports.token(port).is_some() => Some(route),
            _ => None,
        }
    }

    /// Completes as soon as something is known of the sandbox; returns [`Found::Unknown`] only if too many ids are
    /// awaited.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn appears(&self, sandbox_id: &str) -> Found {
        loop {
            let awaited = {
                let mut state = self.write();
                match state.find(sandbox_id) {
                    Found::Unknown => {}
                    found => return found,
                }
                match state.notifier(sandbox_id) {
                    Some(notifier) => Awaited { directory: self, sandbox_id, notifier },
                    None => return Found::Unknown,
                }
            };
            // `notified` misses a `notify_waiters` that came before it. A notifier is removed from the map under the
            // lock when it is notified, so if the map still holds it here, nothing was missed.
            let notified = awaited.notifier.notified();
            if self.read().holds(sandbox_id, &awaited.notifier) {
                notified.await;
            }
        }
    }

    /// Applies an update of the feed and wakes the calls that wait for one of its ids. Calls must not overlap.
    ///
    /// Cost: a large update is applied in parts, so that no look-up waits for all of it. In between the table has some
    /// new rows and some old ones, each of which was true when it was sent.
    pub fn apply(&self, update: Update) -> Applied {
        let (routes, ends) = match update {
            Update::Snapshot { routes, ends } => {
                let named = table::named(&routes, &ends);
                let unnamed = self.read().table.unnamed(&named);
                let old = self.write().set_aside(unnamed);
                for ids in old.chunks(PART) {
                    self.write().table.forget(ids);
                }
                self.write().table.reserve(routes.len());
                (routes, ends)
            }
            Update::Delta { routes, ends } => (routes, ends),
        };
        let (mut routes, mut ends) = (routes.into_iter(), ends.into_iter());
        let mut applied = Applied::default();
        while routes.len() + ends.len() > 0 {
            let routes = routes.by_ref().take(PART).collect();
            let ends = ends.by_ref().take(PART).collect();
            applied.add(self.write().apply(Update::Delta { routes, ends }));
        }
        applied
    }

    /// Drops the routes that were too fresh for the latest snapshot and that no update has named since. The task that
    /// follows the feed calls it some seconds after a snapshot.
    pub fn forget_unconfirmed(&self) {
        let unconfirmed: Vec<_> = self.write().unconfirmed.drain().collect();
        for ids in unconfirmed.chunks(PART) {
            self.write().table.forget(ids);
        }
    }

    /// Adds the address from DNS of a sandbox that the table does not know.
    pub fn place_from_dns(&self, sandbox_id: &str, address: Address) -> Found {
        let mut state = self.write();
        match state.find(sandbox_id) {
            Found::Unknown => Found::Live(state.table.place_from_dns(sandbox_id, address)),
            found => found,
        }
    }

    /// Drops a route that came from DNS and could not be reached. Pushed routes stay.
    pub fn forget_dns(&self, route: &Route) {
        self.write().table.forget_dns(route);
    }

    /// Returns the sandboxes that calls have used since the last call of this. Cost: a look at every route, under the
    /// shared lock.
    pub fn take_used(&self) -> Vec<Arc<str>> {
        self.read().table.take_used()
    }

    /// Number of live routes and of tombstones.
    pub fn len(&self) -> (usize, usize) {
        self.read().table.len()
    }

    /// Whether nothing at all is known.
    pub fn is_empty(&self) -> bool {
        self.read().table.is_empty()
    }

    // No code panics while it holds the lock, and none leaves the table half-changed, so a poisoned lock is safe to
    // use.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sets the fresh ones of `unnamed` aside; returns the others.
    fn set_aside(&mut self, unnamed: Vec<Arc<str>>) -> Vec<Arc<str>> {
        // `None`: the clock has run for less than that, so every route is fresh.
        let moment = Instant::now().checked_sub(FRESH);
        let is_fresh = |id: &Arc<str>| moment.is_none_or(|moment| self.table.is_younger(id, moment));
        let (fresh, old): (Vec<_>, Vec<_>) = unnamed.into_iter().partition(is_fresh);
        self.unconfirmed = fresh.into_iter().collect();
        old
    }

    fn apply(&mut self, update: Update) -> Applied {
        if let (false, Update::Delta { routes, ends }) = (self.unconfirmed.is_empty(), &update) {
            let named = routes.iter().map(|entry| &entry.sandbox_id);
            for id in named.chain(ends.iter().map(|end| &end.sandbox_id)) {
                self.unconfirmed.remove(id);
            }
        }
        let applied = self.table.apply(update);
        for id in &applied.changed {
            if let Some(notifier) = self.awaited.remove(id) {
                notifier.notify_waiters();
            }
        }
        applied
    }

    fn find(&self, sandbox_id: &str) -> Found {
        if let Some(route) = self.table.route(sandbox_id) {
            return Found::Live(Arc::clone(route));
        }
        match self.table.tombstone(sandbox_id) {
            Some(tombstone) => Found::Ended(Arc::clone(tombstone)),
            None => Found::Unknown,
        }
    }

    fn notifier(&mut self, sandbox_id: &str) -> Option<Arc<Notify>> {
        if let Some(notifier) = self.awaited.get(sandbox_id) {
            return Some(Arc::clone(notifier));
        }
        if self.awaited.len() >= MAX_AWAITED_IDS {
            return None;
        }
        let notifier = Arc::new(Notify::new());
        self.awaited.insert(sandbox_id.into(), Arc::clone(&notifier));
        Some(notifier)
    }

    fn holds(&self, sandbox_id: &str, notifier: &Arc<Notify>) -> bool {
        self.awaited.get(sandbox_id).is_some_and(|held| Arc::ptr_eq(held, notifier))
    }
}

/// One call's share of a notifier; the last one removes it from the map.
struct Awaited<'a> {
    directory: &'a Directory,
    sandbox_id: &'a str,
    notifier: Arc<Notify>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.directory.write();
        // Two owners: the map and this share.
        if state.holds(self.sandbox_id, &self.notifier) && Arc::strong_count(&self.notifier) == 2 {
            state.awaited.remove(self.sandbox_id);
        }
    }
}

#[cfg(test)]
mod tests;
