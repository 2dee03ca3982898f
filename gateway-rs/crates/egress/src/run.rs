//! The whole life of the process: bind, serve, drain, exit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use program::process::Program;
use program::settings::{InvalidSetting, Read};
use program::transport::Dialer;
use resolve::{LookupFailed, NameServers};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use tracing_subscriber::filter::Targets;

use crate::admin::{Admin, Health};
use crate::feed::Feed;
use crate::link::Opening;
use crate::live::Heard;
use crate::outside::Outside;
use crate::sandbox::Common;
use crate::sandboxes::Sandboxes;
use crate::settings::{Listen, Settings};

/// How long after one replica another one may be told that a sandbox has moved: control planes look for each other's
/// replicas every second.
const TOLD_WITHIN: Duration = Duration::from_millis(1_500);

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
    let Settings { id, listen, blocked, dns_servers, limits, max_connections, drain, handover, .. } =
        settings;
    let (connect, idle, packages) = (settings.connect, settings.idle, settings.packages);
    let (address, key) = (settings.feed, settings.feed_key);
    let names = NameServers::full_names(&dns_servers)?;
    let (draining, heard) = (watch::Sender::new(false), Heard::default());
    let admin = Admin::bind(&listen).await.map_err(|e| StartFailed::Listen(listen, e))?;
    let listen = admin.address();
    let common = Arc::new(Common { blocked, limits, max_connections, idle, ..Common::default() });
    let (links, connections) = (TaskTracker::new(), TaskTracker::new());
    let opening = Arc::new(Opening {
        dialer: Dialer::default(),
        outside: Arc::new(Outside::new(Box::new(names), connect, common.metrics.lookup.clone(), packages)),
        live: heard.live(),
        draining: draining.subscribe(),
        handover,
        settling: handover.max(drain) + TOLD_WITHIN,
        connections: connections.clone(),
    });
    let mut tasks = JoinSet::new();
    let health = Health { common: Arc::clone(&common), live: heard.live(), draining: draining.subscribe() };
    tasks.spawn(admin.serve(health));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?listen, feed = %address, egress_id = id, "egress started");
    let feed = Feed {
        address,
        key,
        egress_id: id,
        dialer: Dialer::default(),
        common: Arc::clone(&common),
        heard,
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

    /// serving -> draining -> closed. Its feed ends, so that its sandboxes move to other replicas; its links take no
    /// new connections, and the open ones have the drain time to end.
    pub async fn stop(self) {
        self.stop_within(std::future::pending()).await;
    }
}

impl Program for Running {
    const NAME: &'static str = "rollbox-egress";
    type Settings = Settings;
    type Failed = StartFailed;

    fn settings(read: Read<'_>) -> Result<Settings, InvalidSetting> {
        Settings::read(read)
    }

    fn levels(settings: &Settings) -> Targets {
        settings.log.clone()
    }

    async fn start(settings: Settings) -> Result<Self, StartFailed> {
        start(settings).await
    }

    async fn broken(&mut self) -> StartFailed {
        // An empty set is broken too.
        let ended = self.tasks.join_next().await;
        tracing::error!(?ended, "a task of egress ended unexpectedly, shutting down");
        StartFailed::Broken
    }

    /// As [`Running::stop`], but the connections that are left are cut as soon as `hurry` completes.
    async fn stop_within(mut self, hurry: impl Future<Output = ()>) {
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
