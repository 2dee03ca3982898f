use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tokio::time::Instant;
use wire::{Code, Problem};

use crate::{Address, PublicPorts};

/// Where a route came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The pushed route table.
    Table,
    /// Headless DNS; valid until the table knows the sandbox.
    Dns,
}

/// One sandbox's address, valid until its [`RouteEnd`].
#[derive(Debug)]
pub struct Route {
    /// The sandbox.
    pub sandbox_id: Arc<str>,
    /// Where its sidecar listens.
    pub address: Address,
    /// Fences old routes: a route with a larger generation replaces this one.
    pub generation: u64,
    /// The owner of the sandbox; empty for a route from DNS.
    pub owner: Arc<str>,
    /// The ports that are reachable without a token.
    pub ports: PublicPorts,
    /// Where the route came from.
    pub source: Source,
    /// When it was received.
    pub(crate) since: Instant,
    /// Shared by all routes to one address: one from DNS, and the pushed one that confirms it.
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    end: watch::Sender<Option<RouteEnd>>,
    used: AtomicBool,
}

/// Why a route is not valid any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteEnd {
    /// The sandbox ended.
    Ended(Arc<Tombstone>),
    /// The sandbox has another address, or its address from DNS could not be reached: look it up again.
    Replaced,
    /// A snapshot does not name the sandbox any more.
    Forgotten,
}

/// The end of a sandbox, with which every later call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The sandbox.
    pub sandbox_id: Arc<str>,
    /// The generation that ended.
    pub generation: u64,
    /// The end cause.
    pub cause: Code,
    /// Names what ended it; for human readers.
    pub detail: String,
    /// Extras of that error, by name: a `reason` has a hint of its own.
    pub details: BTreeMap<String, String>,
    /// Unix time in milliseconds.
    pub at_ms: i64,
}

impl Route {
    pub(crate) fn new(
        sandbox_id: Arc<str>,
        address: Address,
        generation: u64,
        owner: Arc<str>,
        source: Source,
        ports: PublicPorts,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared { end: watch::Sender::new(None), used: AtomicBool::new(false) });
        Arc::new(Self {
            sandbox_id,
            address,
            generation,
            owner,
            ports,
            source,
            since: Instant::now(),
            shared,
        })
    }

    /// Returns this route with what the table says of it, at the same address: calls under way on it continue, and end
    /// with it.
    pub(crate) fn confirmed(&self, generation: u64, owner: Arc<str>, ports: PublicPorts) -> Arc<Self> {
        Arc::new(Self {
            sandbox_id: Arc::clone(&self.sandbox_id),
            address: self.address.clone(),
            generation,
            owner,
            ports,
            source: Source::Table,
            since: Instant::now(),
            shared: Arc::clone(&self.shared),
        })
    }

    /// Whether both have the same address and share one end.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Records that a call uses the route. Cost: one relaxed write, and only for the first call since
    /// [`Self::take_used`].
    pub fn touch(&self) {
        if !self.shared.used.load(Ordering::Relaxed) {
            self.shared.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call of this.
    pub(crate) fn take_used(&self) -> bool {
        self.shared.used.load(Ordering::Relaxed) && self.shared.used.swap(false, Ordering::Relaxed)
    }

    /// Why the route is not valid any more; `None` while it is.
    pub fn end(&self) -> Option<RouteEnd> {
        self.shared.end.borrow().clone()
    }

    /// Whether the route is still valid. Cost: one uncontended lock.
    pub fn is_current(&self) -> bool {
        self.shared.end.borrow().is_none()
    }

    /// Completes when the route is not valid any more.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, the end stays.
    pub async fn over(&self) -> RouteEnd {
        let mut end = self.shared.end.subscribe();
        let decided = end.wait_for(Option::is_some).await.map(|end| end.clone());
        // The sender lives as long as `self`, so the channel cannot be closed here.
        decided.ok().flatten().unwrap_or(RouteEnd::Forgotten)
    }

    /// Ends the route; only the first end counts.
    pub(crate) fn end_with(&self, end: RouteEnd) {
        self.shared.end.send_if_modified(|decided| {
            let first = decided.is_none();
            if first {
                *decided = Some(end);
            }
            first
        });
    }
}

impl RouteEnd {
    /// The problem for a call that was already under way.
    pub fn problem(&self, sandbox_id: &str) -> Problem {
        match self {
            Self::Ended(tombstone) => tombstone.problem(),
            Self::Replaced => {
                let detail = format!("sandbox {sandbox_id} has another address since the command was sent");
                Problem::new(Code::StreamInterrupted, detail)
            }
            Self::Forgotten => {
                let detail = format!("sandbox {sandbox_id} is no longer on record");
                Problem::new(Code::SandboxLost, detail)
            }
        }
    }
}

impl Tombstone {
    /// The problem for calls to the ended sandbox.
    pub fn problem(&self) -> Problem {
        let detail = if self.detail.is_empty() {
            format!("sandbox {} ended: {}", self.sandbox_id, self.cause.name())
        } else {
            format!("sandbox {} ended: {}", self.sandbox_id, self.detail)
        };
        Problem { code: self.cause, detail, details: self.details.clone() }
            .with("sandbox_id", &self.sandbox_id)
            .with("ended_at_ms", self.at_ms)
    }
}
