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

/// How long a call with a valid token waits for the push of its sandbox's route (contract: route feed).
const PUSH_WAIT: Duration = Duration::from_secs(1);

/// Calls of one owner that may wait: with 1024 permits and commands of one second the wait is 4 s; more would only
/// time out (an estimate).
const MAX_QUEUED_PER_OWNER: usize = 4_096;

/// Calls that may wait at one gate. Each may hold a body of 64 KiB: 1 GiB at most.
const MAX_QUEUED: usize = 16_384;

/// Calls that neither run nor wait for a permit: forwarded ones (a create is held until its sandbox is ready) and
/// those whose body is still arriving. As many as there may be connections: over HTTP/2 one client could open any
/// number.
const MAX_OTHERS: usize = 16_384;

/// State that all calls share.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) settings: Settings,
    pub(crate) activity: Activity,
    /// Admission gate of execs.
    pub(crate) admission: Arc<Admission>,
    /// Admission gate of long-lived streams: attached clients, watches.
    pub(crate) streams: Arc<Admission>,
    /// Admission gate of connections to ports: any client may open them where a port is public, and must not take the
    /// permits of the sandbox's owner.
    pub(crate) ports: Arc<Admission>,
    /// Admission gate of file calls.
    pub(crate) transfers: Arc<Admission>,
    pub(crate) bodies: body::Reader,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) drain: Drain,
    pub(crate) feed: FeedState,
    pub(crate) forwarder: Forwarder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) resolver: Resolver,
    /// Connections to ports, one task each; they end by themselves when the drain expires.
    pub(crate) tunnels: TaskTracker,
    pub(crate) upstream: Arc<Pool>,
}

impl Gateway {
    /// Creates a gateway with an empty route table. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When a DNS zone is set but the system's resolver configuration cannot be read.
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

    /// Registers a new call.
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

    /// Returns why new calls should go to another replica; `None` when this one is ready.
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
