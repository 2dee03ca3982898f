//! The whole life of the process: bind, serve, drain, exit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use program::process::Program;
use program::settings::{InvalidSetting, Read};
use resolve::LookupFailed;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing_subscriber::filter::Targets;

use crate::gateway::Gateway;
use crate::server::Server;
use crate::settings::{Settings, Tls};

/// Time after the drain to write answers that are ready and to close connections.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Why the gateway cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartFailed {
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// There is a DNS zone but no usable resolver configuration.
    #[error("cannot set up DNS: {0}")]
    Dns(#[from] LookupFailed),
    /// It ran, and the task that accepts connections or the one that follows the route feed ended.
    #[error("a part of the gateway failed; the log says which")]
    Broken,
    /// The runtime or its signals cannot be set up.
    #[error("cannot set up the runtime: {0}")]
    Runtime(#[from] io::Error),
}

/// A gateway that serves. Dropping it aborts everything; [`Running::stop`] drains first.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    server: Arc<Server>,
    tasks: JoinSet<()>,
    /// How long running calls may continue after the drain has started.
    drain_time: Duration,
}

/// Binds and serves. Must be called inside a tokio runtime.
///
/// # Errors
/// [`StartFailed`]; nothing runs then.
pub async fn start(mut settings: Settings) -> Result<Running, StartFailed> {
    let (listener, address) = bound(settings.listen).await?;
    let tls = settings.tls.take();
    let secured = match &tls {
        Some(tls) => Some(bound(tls.listen).await?),
        None => None,
    };
    let tls_address = secured.as_ref().map(|(_, address)| *address);
    let (routes, controlplane, drain_time) =
        (settings.routes.clone(), settings.controlplane.clone(), settings.drain);
    let gateway = Arc::new(Gateway::new(settings)?);
    let server = Server::new(&gateway);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&server).accept(listener, None));
    if let (Some((listener, _)), Some(Tls { certificate, .. })) = (secured, tls) {
        tasks.spawn(Arc::clone(&server).accept(listener, Some(Arc::clone(&certificate))));
        tasks.spawn(async move { certificate.follow().await });
    }
    let follower = Arc::clone(&gateway);
    tasks.spawn(async move { follower.follow_feed().await });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %address,
        tls = tls_address.map(tracing::field::display),
        %routes,
        %controlplane,
        "gateway started"
    );
    Ok(Running { address, tls_address, gateway, server, tasks, drain_time })
}

async fn bound(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), StartFailed> {
    let listener = TcpListener::bind(listen).await.map_err(|e| StartFailed::Listen(listen, e))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Running {
    /// The address that it listens on, with the port that was chosen where the settings said 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of its port with TLS, where it has one.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// serving -> draining -> expired -> exit. New calls are refused; running ones have the drain time to end; those
    /// that are left then are aborted.
    pub async fn stop(self) {
        self.stop_within(std::future::pending()).await;
    }
}

impl Program for Running {
    const NAME: &'static str = "rollbox-gateway";
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

    /// Without such a task the gateway would serve an old table, or accept no connections, and look healthy.
    async fn broken(&mut self) -> StartFailed {
        // An empty set is broken too.
        let ended = self.tasks.join_next().await;
        tracing::error!(?ended, "a task of the gateway ended unexpectedly, shutting down");
        StartFailed::Broken
    }

    /// As [`Running::stop`], but the calls that are left are aborted as soon as `hurry` completes.
    async fn stop_within(mut self, hurry: impl Future<Output = ()>) {
        let drain = self.gateway.drain();
        tracing::info!(calls = drain.calls(), "draining, new calls are refused");
        drain.start();
        let idle = tokio::select! {
            biased;
            () = drain.idle() => true,
            () = hurry => false,
            () = tokio::time::sleep(self.drain_time) => false,
        };
        if !idle {
            tracing::warn!(calls = drain.calls(), "drain time is over, aborting the running calls");
            drain.expire();
        }
        self.server.close(CLOSE_GRACE).await;
        self.gateway.close().await;
        self.tasks.shutdown().await;
        tracing::info!("gateway stopped");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.abort();
        self.gateway.drain().expire();
    }
}
