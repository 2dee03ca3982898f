//! Probes and metrics, over HTTP.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::live::Live;
use crate::sandbox::Common;
use crate::settings::Listen;
use crate::telemetry::Gauges;

/// What the probes look at.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    pub(crate) common: Arc<Common>,
    pub(crate) live: Live,
    pub(crate) draining: watch::Receiver<bool>,
}

/// The bound listener.
#[derive(Debug)]
pub(crate) enum Admin {
    Tcp(TcpListener, Listen),
    Unix(UnixListener, Listen),
}

impl Admin {
    /// Binds; replaces the socket file that an earlier process has left.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                let bound = Listen::Tcp(listener.local_addr()?);
                Ok(Self::Tcp(listener, bound))
            }
            Listen::Unix(path) => {
                if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
                    std::fs::remove_file(path)?;
                }
                Ok(Self::Unix(UnixListener::bind(path)?, listen.clone()))
            }
        }
    }

    /// Where it is bound.
    pub(crate) fn address(&self) -> Listen {
        match self {
            Self::Tcp(_, listen) | Self::Unix(_, listen) => listen.clone(),
        }
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, health: Health) {
        let router = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(health);
        let served = match self {
            Self::Tcp(listener, _) => axum::serve(listener, router).await,
            Self::Unix(listener, _) => axum::serve(listener, router).await,
        };
        if let Err(e) = served {
            tracing::error!(error = %e, "probes and metrics are not served any more");
        }
    }
}

/// Ready: it has a snapshot of the feed that it is connected to, and does not shut down.
async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    match (*health.draining.borrow(), health.live.is_connected()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "the feed is not connected"),
        (false, true) => (StatusCode::OK, "ok"),
    }
}

/// The metrics as OpenMetrics.
async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let text = health.common.metrics.render(Gauges {
        connections: health.common.connections.load(Ordering::Relaxed),
        feed_connected: health.live.is_connected(),
        draining: *health.draining.borrow(),
    });
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
