//! The whole life of the process: bind, serve, drain, exit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use resolve::LookupFailed;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::gateway::Gateway;
use crate::server::Server;
use crate::settings::Settings;
use program::{descriptors, log, memory};

/// Exit status for settings that cannot be used (EX_USAGE of sysexits.h).
pub const EXIT_SETTINGS: u8 = 64;

/// Exit status for everything else that keeps the gateway from running.
pub const EXIT_FAILED: u8 = 1;

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

/// Runs with the settings of the environment variables until SIGTERM or SIGINT; returns the process's exit status.
/// Blocks.
pub fn run_from_environment() -> u8 {
    let settings = match Settings::read(|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(invalid) => {
            eprintln!("rollbox-gateway: {invalid}");
            return EXIT_SETTINGS;
        }
    };
    log::install(settings.log.clone());
    memory::configure();
    match run(settings) {
        Ok(()) => 0,
        Err(failed) => {
            eprintln!("rollbox-gateway: {failed}");
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
    runtime.shutdown_timeout(CLOSE_GRACE);
    outcome
}

/// A gateway that serves. Dropping it aborts everything; [`Running::stop`] drains first.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
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
pub async fn start(settings: Settings) -> Result<Running, StartFailed> {
    let listen = settings.listen;
    let listener = TcpListener::bind(listen).await.map_err(|e| StartFailed::Listen(listen, e))?;
    let address = listener.local_addr()?;
    let (routes, controlplane, drain_time) =
        (settings.routes.clone(), settings.controlplane.clone(), settings.drain);
    let gateway = Arc::new(Gateway::new(settings)?);
    let server = Server::new(&gateway);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&server).accept(listener));
    let follower = Arc::clone(&gateway);
    tasks.spawn(async move { follower.follow_feed().await });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %address,
        %routes,
        %controlplane,
        "gateway started"
    );
    Ok(Running { address, gateway, server, tasks, drain_time })
}

impl Running {
    /// The address that it listens on, with the port that was chosen where the settings said 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Completes when a task that should run for ever has ended: without that task the gateway would serve an old
    /// table, or accept no connections, and look healthy.
    async fn broken(&mut self) {
        if let Some(ended) = self.tasks.join_next().await {
            tracing::error!(?ended, "a task of the gateway ended unexpectedly, shutting down");
        }
    }

    /// serving -> draining -> expired -> exit. New calls are refused; running ones have the drain time to end; those
    /// that are left then are aborted.
    pub async fn stop(self) {
        self.stop_within(std::future::pending()).await;
    }

    /// The same, but the calls that are left are aborted as soon as `hurry` completes.
    pub async fn stop_within(mut self, hurry: impl Future<Output = ()>) {
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
