//! The whole life of the process: bind, serve, drain, exit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use program::transport::Dialer;
use program::{descriptors, log, memory};
use resolve::{LookupFailed, NameServers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::admin::{Admin, Health};
use crate::feed::Feed;
use crate::link::Opening;
use crate::outside::Outside;
use crate::sandbox::Common;
use crate::sandboxes::Sandboxes;
use crate::settings::{Listen, Settings};

/// Exit status for settings that cannot be used (EX_USAGE of sysexits.h).
const EXIT_SETTINGS: u8 = 64;

/// Exit status for everything else that keeps it from running.
const EXIT_FAILED: u8 = 1;

/// Time after the drain for the last report, and for connections that were cut.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Why it cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartFailed {
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {0:?}: {1}")]
    Listen(Listen, #[source] io::Error),
    /// There is no usable resolver configuration.
    #[error("cannot set up DNS: {0}")]
    Dns(#[from] LookupFailed),
    /// The runtime or its signals cannot be set up.
    #[error("cannot set up the runtime: {0}")]
    Runtime(#[from] io::Error),
    /// It ran, and a task that should run for ever ended.
    #[error("a part of egress failed; the log says which")]
    Broken,
}

/// Runs with the settings of the environment variables until SIGTERM or SIGINT; returns the process's exit status.
/// Blocks.
pub fn run_from_environment() -> u8 {
    let settings = match Settings::read(|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(invalid) => {
            eprintln!("rollbox-egress: {invalid}");
            return EXIT_SETTINGS;
        }
    };
    log::install(settings.log.clone());
    memory::configure();
    match run(settings) {
        Ok(()) => 0,
        Err(failed) => {
            eprintln!("rollbox-egress: {failed}");
            EXIT_FAILED
        }
    }
}

fn run(settings: Settings) -> Result<(), StartFailed> {
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut running = start(settings).await?;
        let mut asked = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let broken = tokio::select! {
            () = asked() => false,
            () = running.broken() => true,
        };
        // A second signal ends the drain at once.
        running.stop_within(asked()).await;
        if broken { Err(StartFailed::Broken) } else { Ok(()) }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// An egress replica that serves. Dropping it aborts everything; [`Running::stop`] drains first.
#[derive(Debug)]
pub struct Running {
    listen: Listen,
    tasks: JoinSet<()>,
    links: TaskTracker,
    connections: TaskTracker,
    common: Arc<Common>,
    draining: watch::Sender<bool>,
    drain_time: Duration,
}

/// Binds and serves. Must be called inside a tokio runtime.
///
/// # Errors
/// [`StartFailed`]; nothing runs then.
pub async fn start(settings: Settings) -> Result<Running, StartFailed> {
    let Settings { id, listen, blocked, dns_servers, limits, max_connections, drain, .. } = settings;
    let (address, key) = (settings.feed, settings.feed_key);
    let names = NameServers::full_names(&dns_servers)?;
    let (draining, connected) = (watch::Sender::new(false), watch::Sender::new(false));
    let admin = Admin::bind(&listen).await.map_err(|e| StartFailed::Listen(listen, e))?;
    let listen = admin.address();
    let common = Arc::new(Common { blocked, limits, max_connections, ..Common::default() });
    let (links, connections) = (TaskTracker::new(), TaskTracker::new());
    let opening = Arc::new(Opening {
        dialer: Dialer::default(),
        outside: Arc::new(Outside::new(Box::new(names), common.metrics.lookup.clone())),
        connected: connected.subscribe(),
        draining: draining.subscribe(),
        connections: connections.clone(),
    });
    let mut tasks = JoinSet::new();
    let (feed_up, drains) = (connected.subscribe(), draining.subscribe());
    let health = Health { common: Arc::clone(&common), connected: feed_up, draining: drains };
    tasks.spawn(admin.serve(health));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?listen, feed = %address, egress_id = id, "egress started");
    let feed = Feed {
        address,
        key,
        egress_id: id,
        dialer: Dialer::default(),
        common: Arc::clone(&common),
        connected,
        draining: draining.subscribe(),
    };
    let mut sandboxes = Sandboxes::new(Arc::clone(&common), opening, links.clone());
    tasks.spawn(async move { match feed.follow(&mut sandboxes).await {} });
    Ok(Running { listen, tasks, links, connections, common, draining, drain_time: drain })
}

impl Running {
    /// Where metrics and probes are served, with the port that was chosen where the settings said 0.
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Completes when a task that should run for ever has ended.
    async fn broken(&mut self) {
        if let Some(ended) = self.tasks.join_next().await {
            tracing::error!(?ended, "a task of egress ended unexpectedly, shutting down");
        }
    }

    /// serving -> draining -> closed. Its feed ends, so that its sandboxes move to other replicas; its links take no
    /// new connections, and the open ones have the drain time to end.
    pub async fn stop(self) {
        self.stop_within(std::future::pending()).await;
    }

    /// The same, but the connections that are left are cut as soon as `hurry` completes.
    pub async fn stop_within(mut self, hurry: impl Future<Output = ()>) {
        tracing::info!(connections = self.connections.len(), "draining, links take no new connections");
        self.draining.send_replace(true);
        self.connections.close();
        self.links.close();
        tokio::select! {
            biased;
            () = self.links.wait() => {}
            () = hurry => {}
            () = tokio::time::sleep(self.drain_time) => {
                tracing::warn!(connections = self.connections.len(), "drain time is over, cutting what is open");
            }
        }
        self.common.closing.cancel();
        let told = async {
            self.links.wait().await;
            self.connections.wait().await;
            self.common.reports.taken().await;
        };
        let _ = tokio::time::timeout(CLOSE_GRACE, told).await;
        self.tasks.shutdown().await;
        tracing::info!("egress stopped");
    }
}
