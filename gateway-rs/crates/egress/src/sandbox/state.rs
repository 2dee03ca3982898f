use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resolve::Address;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::egress::{Applied, Attempt, Linked};

use super::open::{Open, Protocol};
use super::owner::Owner;
use crate::limits::Bucket;
use crate::policy::{Blocked, Limits, Policy, Refusal};
use crate::report::{Reports, now_ms};
use crate::telemetry::Metrics;

/// Longest host in a report (egress.proto).
const MAX_HOST_BYTES: usize = 255;

/// Where a sandbox's sidecar is, and what opens a link to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: Address,
    pub(crate) generation: u64,
    pub(crate) token: String,
}

/// What all sandboxes of a replica have in common.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) reports: Reports,
    pub(crate) metrics: Metrics,
    pub(crate) blocked: Blocked,
    /// Where a policy has none.
    pub(crate) limits: Limits,
    pub(crate) max_connections: usize,
    /// How long a connection lives on which nothing is sent.
    pub(crate) idle: Duration,
    /// Of all sandboxes.
    pub(crate) connections: AtomicUsize,
    /// When cancelled, no sandbox is served any more.
    pub(crate) closing: CancellationToken,
}

/// One sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(super) common: Arc<Common>,
    place: watch::Sender<Place>,
    /// When cancelled, another replica serves the sandbox: its link takes no new connections.
    left: CancellationToken,
    /// When cancelled, the sandbox is not served any more: its link and its connections are closed.
    pub(super) closed: CancellationToken,
    link_over: CancellationToken,
    /// What all sandboxes of its owner use.
    pub(super) owner: Arc<Owner>,
    state: Mutex<State>,
    /// Both directions, since this replica serves it.
    moved_bytes: AtomicU64,
    /// The limits of the policy in force that are looked at with every piece of data; 0: none.
    bytes_per_second: AtomicU64,
    total_bytes: AtomicU64,
    owner_bytes_per_second: AtomicU64,
    owner_daily_bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) policy: Arc<Policy>,
    pub(super) open: HashMap<u64, Arc<Open>>,
    pub(super) next: u64,
    pub(super) permits: usize,
    pub(super) arrivals: Bucket,
    pub(super) flow: Bucket,
    /// Whether the first attempt to open the link is over, and what waits to be told for it.
    pub(super) link_tried: bool,
    pub(super) untold: Option<Applied>,
    pub(super) link_up: Option<bool>,
    /// Until then connections of it may be open at the replica that served it before.
    pub(super) settles: Instant,
}

/// The end of connections that a switch has cut.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) revision: u64,
    /// How many it has cut.
    count: usize,
    /// Of these, and of those that an earlier one has cut and that are not closed yet.
    ends: Vec<CancellationToken>,
}

/// How long a connection that is cut may take to close. It takes as long as its task needs to get a turn.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

impl Cut {
    /// Waits until the connections are closed; returns how many they were.
    pub(crate) async fn closed(self) -> u32 {
        let all = async {
            for end in &self.ends {
                end.cancelled().await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_WAIT, all).await;
        u32::try_from(self.count).unwrap_or(u32::MAX)
    }

    /// Whether there is nothing to wait for.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl Sandbox {
    /// A sandbox under a policy.
    pub(crate) fn new(
        id: String,
        common: Arc<Common>,
        place: Place,
        owner: Arc<Owner>,
        (revision, policy): (u64, Arc<Policy>),
    ) -> Arc<Self> {
        let now = Instant::now();
        let sandbox = Self {
            id,
            place: watch::Sender::new(place),
            left: CancellationToken::new(),
            closed: common.closing.child_token(),
            link_over: CancellationToken::new(),
            owner,
            moved_bytes: AtomicU64::new(0),
            bytes_per_second: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            owner_bytes_per_second: AtomicU64::new(0),
            owner_daily_bytes: AtomicU64::new(0),
            state: Mutex::new(State {
                revision,
                policy,
                open: HashMap::new(),
                next: 0,
                permits: 0,
                arrivals: Bucket::full(0.0, now),
                flow: Bucket::full(0.0, now),
                link_tried: false,
                untold: None,
                link_up: None,
                settles: now,
            }),
            common,
        };
        sandbox.use_limits(&mut sandbox.lock());
        Arc::new(sandbox)
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.lock().policy)
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Where it is, now and later.
    pub(crate) fn place(&self) -> watch::Receiver<Place> {
        self.place.subscribe()
    }

    /// Takes in where it is; an older place than the known one is ignored.
    pub(crate) fn move_to(&self, place: Place) {
        self.place.send_if_modified(|known| {
            let newer = place.generation >= known.generation && place != *known;
            if newer {
                *known = place;
            }
            newer
        });
    }

    /// Brings a policy into force: from the return on no connection is let in that it does not allow, and those that
    /// are open and not allowed any more are told to close. `None` for an older revision than the one in force.
    pub(crate) fn switch(&self, revision: u64, policy: Arc<Policy>) -> Option<Cut> {
        let mut state = self.lock();
        if revision < state.revision {
            return None;
        }
        (state.revision, state.policy) = (revision, policy);
        self.use_limits(&mut state);
        let forbidden =
            || state.open.values().filter(|open| !open.is_allowed(&state.policy, &self.common.blocked));
        let count = forbidden().filter(|open| !open.is_cut()).count();
        let ends = forbidden().map(|open| open.cut()).collect();
        Some(Cut { revision, count, ends })
    }

    /// Until `at`, connections of it may be open at the replica that served it before.
    pub(crate) fn settle(&self, at: Instant) {
        self.lock().settles = at;
    }

    /// When all its connections are those of this replica.
    pub(crate) fn settles(&self) -> Instant {
        self.lock().settles
    }

    /// Another replica serves it: no new connections; the open ones have a moment to end.
    pub(crate) fn leave(&self) {
        self.left.cancel();
    }

    /// The same where this replica serves it by a new link: nothing is told of this one any more.
    pub(crate) fn replaced(&self) {
        if self.lock().link_up.replace(false) == Some(true) {
            self.common.metrics.links.dec();
        }
        self.leave();
    }

    /// Completes when another replica serves it.
    pub(crate) async fn left(&self) {
        self.left.cancelled().await;
    }

    /// Serves it no more: its link and its connections are closed.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Its link has ended for good.
    pub(crate) fn end_link(&self) {
        self.link_over.cancel();
    }

    /// Completes when its link has ended for good.
    pub(crate) async fn link_over(&self) {
        self.link_over.cancelled().await;
    }

    /// Completes when it is served no more.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Reports a policy that is in force; the first one together with the first link, so that whoever waits for it has
    /// a link then.
    pub(crate) fn tell_applied(&self, revision: u64, cut: u32) {
        let applied = Applied { sandbox_id: self.id.clone(), revision, cut };
        let mut state = self.lock();
        if state.link_tried {
            drop(state);
            self.common.reports.applied(applied);
        } else {
            state.untold = Some(applied);
        }
    }

    /// Reports whether there is a link, where that has changed.
    pub(crate) fn tell_linked(&self, up: bool, detail: &str) {
        let mut state = self.lock();
        state.link_tried = true;
        let (before, untold) = (state.link_up.replace(up), state.untold.take());
        drop(state);
        if up && before != Some(true) {
            self.common.metrics.links.inc();
        } else if !up && before == Some(true) {
            self.common.metrics.links.dec();
        }
        if before != Some(up) {
            self.common.reports.linked(Linked { sandbox_id: self.id.clone(), up, detail: detail.to_owned() });
        }
        if let Some(untold) = untold {
            self.common.reports.applied(untold);
        }
    }

    /// Puts a refused attempt on record; `target` as it was asked for.
    pub(crate) fn tell_refused(&self, host: &str, port: u16, protocol: Protocol, refusal: &Refusal) {
        self.common.metrics.attempt(refusal.verdict, protocol.name());
        let host: String = host.chars().filter(|c| !c.is_control()).take(MAX_HOST_BYTES).collect();
        self.common.reports.attempt(Attempt {
            sandbox_id: self.id.clone(),
            at_ms: now_ms(),
            host: cut_to(host, MAX_HOST_BYTES),
            port: port.into(),
            verdict: refusal.verdict.into(),
            policy: refusal.policy.to_string(),
            rule: refusal.rule.to_string(),
            protocol: protocol.name().to_owned(),
            count: 1,
            ..Attempt::default()
        });
    }

    /// Counts data that was moved; returns how long to wait before more.
    ///
    /// # Errors
    /// The sandbox, or its owner today, may move no more.
    pub(super) fn moved(&self, bytes: usize) -> Result<Duration, Refusal> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let all = self.moved_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let total = self.total_bytes.load(Ordering::Relaxed);
        if total > 0 && all > total {
            let detail = format!("the sandbox has moved {total} bytes, and may move no more");
            return Err(self.limited(&self.policy(), "total_bytes", detail));
        }
        let owners = self.moved_of_owner(bytes)?;
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        if rate == 0 {
            return Ok(owners);
        }
        Ok(self.lock().flow.take(as_f64(bytes), as_f64(rate), Instant::now()).max(owners))
    }

    fn moved_of_owner(&self, bytes: u64) -> Result<Duration, Refusal> {
        let rate = self.owner_bytes_per_second.load(Ordering::Relaxed);
        let daily = self.owner_daily_bytes.load(Ordering::Relaxed);
        if rate == 0 && daily == 0 {
            return Ok(Duration::ZERO);
        }
        self.owner
            .moved(bytes, rate, daily)
            .ok_or_else(|| self.limited(&self.policy(), "owner_daily_bytes", spent(daily)))
    }

    /// A refusal by a limit, which is counted.
    pub(super) fn limited(&self, policy: &Policy, limit: &'static str, detail: String) -> Refusal {
        self.common.metrics.limited(limit);
        policy.limit(limit, detail)
    }

    /// The limits of the policy in force, and the replica's own where it has none.
    pub(super) fn limits(&self, policy: &Policy) -> Limits {
        let (own, default) = (policy.limits(), self.common.limits);
        Limits {
            connections: own.connections.or(default.connections),
            connections_per_second: own.connections_per_second.or(default.connections_per_second),
            bytes_per_second: own.bytes_per_second.or(default.bytes_per_second),
            total_bytes: own.total_bytes.or(default.total_bytes),
            owner_connections: own.owner_connections.or(default.owner_connections),
            owner_connections_per_second: own
                .owner_connections_per_second
                .or(default.owner_connections_per_second),
            owner_bytes_per_second: own.owner_bytes_per_second.or(default.owner_bytes_per_second),
            owner_daily_bytes: own.owner_daily_bytes.or(default.owner_daily_bytes),
        }
    }

    fn use_limits(&self, state: &mut State) {
        let limits = self.limits(&state.policy);
        let (now, rate) = (Instant::now(), limits.bytes_per_second.unwrap_or(0));
        self.bytes_per_second.store(rate, Ordering::Relaxed);
        self.total_bytes.store(limits.total_bytes.unwrap_or(0), Ordering::Relaxed);
        self.owner_bytes_per_second.store(limits.owner_bytes_per_second.unwrap_or(0), Ordering::Relaxed);
        self.owner_daily_bytes.store(limits.owner_daily_bytes.unwrap_or(0), Ordering::Relaxed);
        state.flow = Bucket::full(as_f64(rate), now);
        state.arrivals = Bucket::full(limits.connections_per_second.map_or(f64::MAX, f64::from), now);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an owner's sandboxes move no more today.
pub(super) fn spent(daily_bytes: u64) -> String {
    format!(
        "the owner's sandboxes have moved {daily_bytes} bytes today, and may move no more until midnight UTC"
    )
}

/// Rates are far below 2^53, above which neighbours become one.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

fn cut_to(mut text: String, bytes: usize) -> String {
    while text.len() > bytes {
        text.pop();
    }
    text
}
