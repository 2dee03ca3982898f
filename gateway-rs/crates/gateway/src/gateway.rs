//! All parts of a gateway, put together from the bottom to the top; each gets only what it needs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use resolve::{Address, Directory, Dns, LookupFailed, NameServers, Resolver};
use tokio_util::task::TaskTracker;

use crate::activity::Activity;
use crate::admission::{Admission, Limits};
use crate::call::Calls;
use crate::deletes::Deletes;
use crate::dns_checks::{self, Checks};
use crate::drain::Drain;
use crate::exec::Execs;
use crate::feed::{self, FeedState};
use crate::files::Files;
use crate::forward::Forwarder;
use crate::http::body::Reader;
use crate::late_settings::Creates;
use crate::node_usage::NodeUsage;
use crate::ports::Ports;
use crate::processes::Attaches;
use crate::settings::{Headless, Settings};
use crate::telemetry::{Gauges, Metrics};
use crate::upstream::Pool;
use crate::usage::UsageCalls;
use program::transport::Dialer;

/// How long a call with a valid token waits for the push of its sandbox's route (contract: route feed).
const PUSH_WAIT: Duration = Duration::from_secs(1);

/// Calls of one owner that may wait: with 1024 permits and commands of one second the wait is 4 s; more would only
/// time out (an estimate).
const MAX_QUEUED_PER_OWNER: usize = 4_096;

/// Calls that may wait at one gate; each may hold a body of 64 KiB. At all four gates together no more than this and
/// `MAX_OTHERS` wait, since `most_calls` limits those of all kinds: 2 GiB at most.
const MAX_QUEUED: usize = 16_384;

/// Calls that neither run nor wait for a permit: forwarded ones (a create is held until its sandbox is ready) and
/// those whose body is still arriving. As many as there may be connections: over HTTP/2 one client could open any
/// number.
const MAX_OTHERS: usize = 16_384;

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Gateway {
    metrics: Arc<Metrics>,
    dialer: Arc<Dialer>,
    drain: Drain,
    resolver: Arc<Resolver>,
    /// Where the route feed comes from.
    routes: Address,
    feed: Arc<FeedState>,
    nodes: Arc<NodeUsage>,
    activity: Activity,
    upstream: Arc<Pool>,
    bodies: Reader,
    /// Admission gate of execs.
    exec_gate: Arc<Admission>,
    /// Connections to ports, and other tasks beside calls.
    tunnels: TaskTracker,
    execs: Execs,
    attaches: Attaches,
    files: Files,
    ports: Ports,
    usage: UsageCalls,
    forwarder: Forwarder,
    creates: Creates,
    deletes: Deletes,
}

/// Admission gates, one for each kind of call.
struct Gates {
    execs: Arc<Admission>,
    /// Long-lived streams: attached clients, watches.
    streams: Arc<Admission>,
    /// Connections to ports: any client may open them where a port is public, and must not take the permits of the
    /// sandbox's owner.
    ports: Arc<Admission>,
    /// File calls.
    transfers: Arc<Admission>,
}

impl Gates {
    fn new(settings: &Settings) -> Self {
        let gate = |inflight, per_sandbox, knob| {
            let limits =
                Limits { inflight, per_sandbox, queued_per_owner: MAX_QUEUED_PER_OWNER, queued: MAX_QUEUED };
            Admission::new(limits, settings.queue_timeout, knob)
        };
        Self {
            execs: gate(
                settings.max_inflight,
                settings.max_inflight_per_sandbox,
                "ROLLBOX_GATEWAY_MAX_INFLIGHT, ROLLBOX_GATEWAY_MAX_INFLIGHT_PER_SANDBOX",
            ),
            streams: gate(
                settings.max_streams,
                settings.max_streams_per_sandbox,
                "ROLLBOX_GATEWAY_MAX_STREAMS, ROLLBOX_GATEWAY_MAX_STREAMS_PER_SANDBOX",
            ),
            ports: gate(
                settings.max_port_connections,
                settings.max_port_connections_per_sandbox,
                "ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS, ROLLBOX_GATEWAY_MAX_PORT_CONNECTIONS_PER_SANDBOX",
            ),
            transfers: gate(
                settings.max_transfers,
                settings.max_transfers_per_sandbox,
                "ROLLBOX_GATEWAY_MAX_TRANSFERS, ROLLBOX_GATEWAY_MAX_TRANSFERS_PER_SANDBOX",
            ),
        }
    }

    fn all(&self) -> Vec<Arc<Admission>> {
        [&self.execs, &self.streams, &self.ports, &self.transfers].map(Arc::clone).to_vec()
    }
}

impl Gateway {
    /// Creates a gateway with an empty route table. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When a DNS zone is set but the system's resolver configuration cannot be read.
    pub(crate) fn new(settings: Settings) -> Result<Self, LookupFailed> {
        let metrics = Arc::new(Metrics::new());
        let dialer = Arc::new(Dialer::default());
        let drain = Drain::new(most_calls(&settings));
        let directory = Arc::new(Directory::new());
        let resolver = Arc::new(Resolver::new(Arc::clone(&directory), dns(&settings)?, PUSH_WAIT));
        let feed = Arc::new(FeedState::default());
        let nodes = Arc::new(NodeUsage::default());
        let upstream = Pool::new(Arc::clone(&metrics), Arc::clone(&dialer));
        let gates = Gates::new(&settings);
        let bodies = Reader::new(settings.max_body_bytes, settings.queue_timeout);
        let tunnels = TaskTracker::new();
        let calls = Arc::new(Calls::new(
            settings.verifier,
            Arc::clone(&resolver),
            Arc::clone(&feed),
            Arc::clone(&upstream),
            Arc::clone(&dialer),
            drain.clone(),
            Arc::clone(&metrics),
        ));
        let shared = || Arc::clone(&calls);
        let forwarder =
            Forwarder::new(settings.controlplane, Arc::clone(&dialer), drain.clone(), Arc::clone(&metrics));
        let domain = settings.ports_domain.map(Into::into);
        Ok(Self {
            deletes: Deletes::new(forwarder.clone(), Arc::clone(&directory)),
            activity: Activity::new(directory, gates.all()),
            execs: Execs::new(shared(), Arc::clone(&gates.execs), bodies.clone()),
            attaches: Attaches::new(shared(), Arc::clone(&gates.streams)),
            files: Files::new(shared(), gates.transfers, gates.streams, tunnels.clone()),
            ports: Ports::new(shared(), gates.ports, tunnels.clone(), domain),
            usage: UsageCalls::new(shared(), Arc::clone(&nodes)),
            creates: Creates::new(shared(), forwarder.clone(), bodies.clone(), settings.settings_key),
            forwarder,
            exec_gate: gates.execs,
            routes: settings.routes,
            metrics,
            dialer,
            drain,
            resolver,
            feed,
            nodes,
            upstream,
            bodies,
            tunnels,
        })
    }

    /// Keeps the route table up to date and compares it with DNS, until it is dropped.
    pub(crate) async fn follow_feed(&self) {
        let dns = self.resolver.dns();
        let (checks, queue) = Checks::new();
        let sink = feed::Sink {
            directory: self.resolver.directory(),
            metrics: &self.metrics,
            state: &self.feed,
            nodes: &self.nodes,
            checks: dns.map(|_| &checks),
        };
        let follow = feed::follow(&self.dialer, &self.routes, &sink, &self.activity);
        match dns {
            Some(dns) => drop(tokio::join!(follow, dns_checks::run(dns, &self.metrics, queue))),
            None => follow.await,
        }
    }

    /// Closes the connections to sandboxes and waits for their tasks.
    pub(crate) async fn close(&self) {
        self.upstream.close().await;
        self.tunnels.close();
        self.tunnels.wait().await;
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns why new calls should go to another replica; `None` when this one is ready.
    pub(crate) fn not_ready(&self) -> Option<&'static str> {
        if self.drain.is_draining() {
            return Some("draining");
        }
        (!self.feed.has_snapshot()).then_some("waiting for the first snapshot of the route feed")
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let (inflight, queued) = self.exec_gate.counts();
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

fn dns(settings: &Settings) -> Result<Option<Dns>, LookupFailed> {
    let Some(Headless { zone, shards, server }) = &settings.dns else { return Ok(None) };
    let names = NameServers::full_names(server.as_slice())?;
    Ok(Some(Dns::new(Box::new(names), zone.clone(), *shards)))
}

/// Calls of all kinds that may be under way.
fn most_calls(settings: &Settings) -> usize {
    let Settings { max_inflight, max_streams, max_port_connections, max_transfers, .. } = settings;
    max_inflight + max_streams + max_port_connections + max_transfers + MAX_QUEUED + MAX_OTHERS
}

/// Each endpoint takes only its own part of the gateway as its state.
macro_rules! part {
    ($part:ty, $field:ident) => {
        impl FromRef<Arc<Gateway>> for $part {
            fn from_ref(gateway: &Arc<Gateway>) -> Self {
                gateway.$field.clone()
            }
        }
    };
}

part!(Execs, execs);
part!(Attaches, attaches);
part!(Files, files);
part!(Ports, ports);
part!(UsageCalls, usage);
part!(Forwarder, forwarder);
part!(Creates, creates);
part!(Deletes, deletes);
