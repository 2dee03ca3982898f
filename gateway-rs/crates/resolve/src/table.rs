use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use crate::{Address, End, Entry, PublicPorts, Route, RouteEnd, Source, Tombstone, Update};

/// Tombstones kept, oldest dropped first: a day of 100,000 sandboxes, about 45 MB (an estimate of a large
/// installation, of which few have more details than what ended them). A sandbox whose tombstone was dropped answers `sandbox_not_found` instead of its cause.
const MAX_TOMBSTONES: usize = 100_000;

/// Routes from DNS that are kept; beyond it they are used but looked up again. An estimate: DNS answers only in the
/// moments between a sandbox's start and its push.
const MAX_DNS_ROUTES: usize = 4_096;

/// Routes and tombstones of all sandboxes. No I/O; the clock is read only to note when a route was received.
///
/// Per sandbox the larger generation wins; within one generation an end wins over a route. So the order in which
/// deltas arrive does not matter, and nothing old ever replaces something new. A snapshot also removes the routes that
/// it does not name; tombstones stay, because an id is never reused.
#[derive(Debug)]
pub struct Table {
    routes: HashMap<Arc<str>, Arc<Route>>,
    tombstones: HashMap<Arc<str>, Arc<Tombstone>>,
    /// Tombstones in order of arrival; `tombstones` may have a newer one, or none, for the same sandbox.
    tombstone_order: VecDeque<Arc<Tombstone>>,
    max_tombstones: usize,
    dns_routes: usize,
}

/// What an update changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Sandboxes that have a route or an end and had neither, or another, before.
    pub changed: Vec<Arc<str>>,
    /// Routes and ends that were ignored as too old.
    pub fenced: usize,
    /// Routes from DNS whose address a push contradicts.
    pub dns_disagreements: usize,
}

impl Applied {
    pub(crate) fn add(&mut self, later: Self) {
        self.changed.extend(later.changed);
        self.fenced += later.fenced;
        self.dns_disagreements += later.dns_disagreements;
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::with_max_tombstones(MAX_TOMBSTONES)
    }
}

impl Table {
    /// Creates an empty table that keeps at most this many tombstones.
    pub fn with_max_tombstones(max_tombstones: usize) -> Self {
        Self {
            routes: HashMap::new(),
            tombstones: HashMap::new(),
            tombstone_order: VecDeque::new(),
            max_tombstones,
            dns_routes: 0,
        }
    }

    /// The live route of a sandbox.
    pub fn route(&self, sandbox_id: &str) -> Option<&Arc<Route>> {
        self.routes.get(sandbox_id)
    }

    /// The tombstone of a sandbox.
    pub fn tombstone(&self, sandbox_id: &str) -> Option<&Arc<Tombstone>> {
        self.tombstones.get(sandbox_id)
    }

    /// Returns the sandboxes whose routes were used since the last call of this. Cost: a look at every route.
    pub(crate) fn take_used(&self) -> Vec<Arc<str>> {
        let used = self.routes.values().filter(|route| route.take_used());
        used.map(|route| Arc::clone(&route.sandbox_id)).collect()
    }

    /// Number of live routes and of tombstones.
    pub fn len(&self) -> (usize, usize) {
        (self.routes.len(), self.tombstones.len())
    }

    /// Whether nothing at all is known.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Applies an update; ends every route that it makes invalid.
    pub fn apply(&mut self, update: Update) -> Applied {
        let mut applied = Applied::default();
        let (routes, ends) = match update {
            Update::Snapshot { routes, ends } => {
                self.forget(&self.unnamed(&named(&routes, &ends)));
                (routes, ends)
            }
            Update::Delta { routes, ends } => (routes, ends),
        };
        for entry in routes {
            self.place(entry, &mut applied);
        }
        for end in ends {
            self.add_tombstone(end, &mut applied);
        }
        applied
    }

    /// Adds an address from DNS; a route that the table already has stays.
    pub fn place_from_dns(&mut self, sandbox_id: &str, address: Address) -> Arc<Route> {
        if let Some(route) = self.routes.get(sandbox_id) {
            return Arc::clone(route);
        }
        let id: Arc<str> = sandbox_id.into();
        // Generation 0: any pushed route wins over it.
        let route = Route::new(Arc::clone(&id), address, 0, "".into(), Source::Dns, PublicPorts::default());
        if self.dns_routes < MAX_DNS_ROUTES {
            self.insert(id, Arc::clone(&route));
        }
        route
    }

    /// Drops a route that came from DNS and could not be reached, so that the next call looks it up again. Pushed
    /// routes stay.
    pub fn forget_dns(&mut self, route: &Route) {
        let ours = self.routes.get(&route.sandbox_id).is_some_and(|held| std::ptr::eq(&**held, route));
        if ours && route.source == Source::Dns {
            self.remove(&route.sandbox_id, RouteEnd::Replaced);
        }
    }

    /// Sandboxes with a route that a snapshot does not name.
    pub(crate) fn unnamed(&self, named: &HashSet<&str>) -> Vec<Arc<str>> {
        self.routes.keys().filter(|id| !named.contains(&***id)).cloned().collect()
    }

    /// Whether the route of a sandbox was received after `moment`.
    pub(crate) fn is_younger(&self, sandbox_id: &str, moment: Instant) -> bool {
        self.routes.get(sandbox_id).is_some_and(|route| route.since > moment)
    }

    /// Reserves room for this many routes in all, so that the table does not grow again and again while it is filled.
    pub(crate) fn reserve(&mut self, routes: usize) {
        self.routes.reserve(routes.saturating_sub(self.routes.len()));
    }

    /// Drops the routes of sandboxes that a snapshot does not name.
    pub(crate) fn forget(&mut self, unnamed: &[Arc<str>]) {
        for id in unnamed {
            self.remove(id, RouteEnd::Forgotten);
        }
    }

    fn place(&mut self, entry: Entry, applied: &mut Applied) {
        let id = Arc::clone(&entry.sandbox_id);
        let ended = self.tombstones.get(&id).is_some_and(|end| end.generation >= entry.generation);
        let current = self.routes.get(&id);
        if let Some(route) = current.filter(|route| !ended && changes_ports(route, &entry)) {
            // The address is the same, so calls under way are not affected.
            let route = route.confirmed(entry.generation, entry.owner, entry.ports);
            self.insert(id, route);
            return;
        }
        let newer = current
            .is_some_and(|route| route.source == Source::Table && route.generation >= entry.generation);
        if ended || newer {
            applied.fenced += 1;
            return;
        }
        let from_dns = current.filter(|route| route.source == Source::Dns);
        let route = match from_dns.filter(|route| route.address == entry.address) {
            Some(route) => route.confirmed(entry.generation, entry.owner, entry.ports),
            None => {
                applied.dns_disagreements += usize::from(from_dns.is_some());
                self.remove(&id, RouteEnd::Replaced);
                let Entry { address, generation, owner, ports, .. } = entry;
                Route::new(Arc::clone(&id), address, generation, owner, Source::Table, ports)
            }
        };
        self.tombstones.remove(&id);
        self.insert(Arc::clone(&id), route);
        applied.changed.push(id);
    }

    fn add_tombstone(&mut self, end: End, applied: &mut Applied) {
        let id = Arc::clone(&end.sandbox_id);
        let known = self.tombstones.get(&id).is_some_and(|held| held.generation >= end.generation);
        let newer = self.routes.get(&id).is_some_and(|route| route.generation > end.generation);
        if known || newer {
            applied.fenced += 1;
            return;
        }
        let tombstone = Arc::new(end);
        self.remove(&id, RouteEnd::Ended(Arc::clone(&tombstone)));
        self.tombstone_order.push_back(Arc::clone(&tombstone));
        self.tombstones.insert(Arc::clone(&id), tombstone);
        if self.tombstone_order.len() > self.max_tombstones
            && let Some(oldest) = self.tombstone_order.pop_front()
            && self.tombstones.get(&oldest.sandbox_id).is_some_and(|held| Arc::ptr_eq(held, &oldest))
        {
            self.tombstones.remove(&oldest.sandbox_id);
        }
        applied.changed.push(id);
    }

    fn insert(&mut self, id: Arc<str>, route: Arc<Route>) {
        self.dns_routes += usize::from(route.source == Source::Dns);
        let before = self.routes.insert(id, route);
        self.dns_routes -= usize::from(before.is_some_and(|route| route.source == Source::Dns));
    }

    fn remove(&mut self, id: &str, end: RouteEnd) {
        if let Some(route) = self.routes.remove(id) {
            self.dns_routes -= usize::from(route.source == Source::Dns);
            route.end_with(end);
        }
    }
}

/// Whether an entry changes the public ports of a route, and nothing else.
fn changes_ports(route: &Route, entry: &Entry) -> bool {
    route.source == Source::Table
        && (route.generation, &route.address) == (entry.generation, &entry.address)
        && entry.ports.revision > route.ports.revision
}

/// Every sandbox that a snapshot names.
pub(crate) fn named<'a>(routes: &'a [Entry], ends: &'a [End]) -> HashSet<&'a str> {
    routes.iter().map(|e| &*e.sandbox_id).chain(ends.iter().map(|e| &*e.sandbox_id)).collect()
}
