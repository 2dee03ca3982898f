use std::sync::Arc;
use std::time::Duration;

use resolve::{Directory, Dns, LookupFailed, NameServers, Resolver};
use tokio_util::task::TaskTracker;
use wire::{Code, Problem};

use crate::activity::Activity;
use crate::admission::{Admission, Limits};
use crate::body;
use crate::drain::{Call, Drain};
use crate::feed::FeedState;
use crate::forward::Forwarder;
use crate::settings::{Headless, Settings};
use crate::telemetry::{Gauges, Metrics};
use crate::transport::Dialer;
use crate::upstream::Pool;

/// How long a call with a valid token waits for its sandbox to be pushed (contract: route feed).
const PUSH_WAIT: Duration = Duration::from_secs(1);

/// Calls of one owner that may wait: with 1024 places and commands of a second a wait of 4 s; more would wait in vain
/// (guess).
const MAX_QUEUED_PER_OWNER: usize = 4_096;

/// Calls that may wait in all. Each may hold a body of 64 KiB: 1 GiB at most.
const MAX_QUEUED: usize = 16_384;

/// Calls that neither run nor wait for their turn: forwarded ones (a create is held until its sandbox is ready) and
/// those whose body is still coming. As many as there may be connections; with HTTP/2 one client could bring any number.
const MAX_OTHERS: usize = 16_384;

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) settings: Settings,
    pub(crate) activity: Activity,
    /// For execs.
    pub(crate) admission: Arc<Admission>,
    /// For streams that live long: attached clients, watches.
    pub(crate) streams: Arc<Admission>,
    /// For connections to ports: anyone may make them where a port is public, and must not be in the owner's way.
    pub(crate) ports: Arc<Admission>,
    /// For file calls.
    pub(crate) transfers: Arc<Admission>,
    pub(crate) bodies: body::Reader,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) drain: Drain,
    pub(crate) feed: FeedState,
    pub(crate) forwarder: Forwarder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) resolver: Resolver,
    /// Connections to ports, one task each; they end by themselves when the drain is over.
    pub(crate) tunnels: TaskTracker,
    pub(crate) upstream: Arc<Pool>,
}

impl Gateway {
    /// A gateway that knows no route yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When there is a DNS zone but the system's resolver configuration cannot be read.
    pub(crate) fn new(settings: Settings) -> Result<Self, LookupFailed> {
        let dns = match &settings.dns {
            Some(Headless { zone, shards, server }) => {
                let names = NameServers::full_names(*server)?;
                Some(Dns::new(Box::new(names), zone.clone(), *shards))
            }
            None => None,
        };
        let dialer = Arc::new(Dialer::default());
        let gate = |inflight, per_sandbox, knob| {
            let limits =
                Limits { inflight, per_sandbox, queued_per_owner: MAX_QUEUED_PER_OWNER, queued: MAX_QUEUED };
            Admission::new(limits, settings.queue_timeout, knob)
        };
        let metrics = Arc::new(Metrics::new());
        let admission = gate(
            settings.max_inflight,
            settings.max_inflight_per_sandbox,
            "ROLLBOX_GATEWAY_MAX_INFLIGHT, ROLLBOX_GATEWAY_MAX_INFLIGHT_PER_SANDBOX",
        );
        let streams = gate(
            settings.max_streams,
            settings.max_streams_per_sandbox,
            "ROLLBOX_GATEWAY_MAX_STREAMS, ROLLBOX_GATEWAY_MAX_STREAMS_PER_SANDBOX",
        );
        let ports = gate(
            settings.max_port_connections,
            settings.max_port_connections_per_sandbox,
            "ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS, ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS_PER_SANDBOX",
        );
        let transfers = gate(
            settings.max_transfers,
            settings.max_transfers_per_sandbox,
            "ROLLBOX_GATEWAY_MAX_TRANSFERS, ROLLBOX_GATEWAY_MAX_TRANSFERS_PER_SANDBOX",
        );
        let directory = Arc::new(Directory::new());
        let gates = [&admission, &streams, &ports, &transfers].map(Arc::clone).to_vec();
        Ok(Self {
            activity: Activity::new(Arc::clone(&directory), gates),
            admission,
            streams,
            ports,
            transfers,
            bodies: body::Reader::new(settings.max_body_bytes, settings.queue_timeout),
            drain: Drain::default(),
            feed: FeedState::default(),
            forwarder: Forwarder::new(settings.controlplane.clone(), Arc::clone(&dialer)),
            resolver: Resolver::new(directory, dns, PUSH_WAIT),
            tunnels: TaskTracker::new(),
            upstream: Pool::new(Arc::clone(&metrics), Arc::clone(&dialer)),
            dialer,
            metrics,
            settings,
        })
    }

    /// Counts a new call in.
    ///
    /// # Errors
    /// `draining` once the drain has started, `capacity_unavailable` when too many calls are under way.
    pub(crate) fn enter(&self) -> Result<Call, Problem> {
        let call = self.drain.enter()?;
        let Settings { max_inflight, max_streams, max_port_connections, max_transfers, .. } = self.settings;
        let running = max_inflight + max_streams + max_port_connections + max_transfers;
        let limit = running + MAX_QUEUED + MAX_OTHERS;
        if self.drain.calls() > limit {
            let detail = format!("{limit} calls of all kinds are under way, no more are taken");
            return Err(Problem::new(Code::CapacityUnavailable, detail));
        }
        Ok(call)
    }

    /// Why no new call should come here; `None` when they may.
    pub(crate) fn not_ready(&self) -> Option<&'static str> {
        if self.drain.is_draining() {
            return Some("draining");
        }
        (!self.feed.has_snapshot()).then_some("waiting for the first snapshot of the route feed")
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let (inflight, queued) = self.admission.counts();
        let (routes, tombstones) = self.resolver.directory().len();
        Gauges {
            inflight,
            queued,
            calls: self.drain.calls(),
            body_bytes: self.bodies.held_bytes(),
            routes,
            tombstones,
            upstream_connections: self.upstream.connections(),
            feed_silence: self.feed.silence(),
            feed_age: self.feed.age(),
            draining: self.drain.is_draining(),
        }
    }
}
