//! Keeps the route table up to date from the route feed: a snapshot, then deltas; a new snapshot after each reconnect.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{Stream as Messages, StreamExt as _};
use http::Uri;
use resolve::{Address, Directory, Found, Update};
use tokio::time::Instant;
use tonic::Status;
use wire::routes::update::Body;
use wire::routes::{self, WatchRequest, routes_client::RoutesClient};

use crate::activity::Activity;
use crate::dns_checks::Checks;
use crate::draining::Draining;
use crate::http::request_id;
use crate::node_usage::NodeUsage;
use crate::telemetry::Metrics;
use program::grpc::{Connection, Sender};
use program::transport::Dialer;

/// Three heartbeats (routes.proto): a feed that is silent for longer counts as dead, even if its socket is open.
const SILENCE: Duration = Duration::from_secs(15);

/// Timeout for connecting and for the start of the response.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Backoff of reconnects: doubles up to `MAX_BACKOFF`. Each pause is a random part of it, so that the gateways of an
/// installation do not reconnect all at once, and at least half of it, so that none reconnects without a pause.
const BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// How long a fresh route that a snapshot does not name is kept. The snapshot may come from a replica that lags by a
/// moment; within this time the replica has received what it missed.
const CONFIRMATION_WAIT: Duration = Duration::from_secs(5);

/// Maximum message size: twice that of a snapshot's (routes.proto).
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// State of the feed itself.
#[derive(Debug, Default)]
pub(crate) struct FeedState {
    inner: Mutex<State>,
    draining: Draining,
}

#[derive(Debug, Default)]
struct State {
    has_snapshot: bool,
    connected: bool,
    last_message: Option<Instant>,
}

/// Why a feed ended; it is always reopened.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("{}: {}", .0.code(), .0.message())]
    Refused(#[from] Box<Status>),
    #[error("silent for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the control plane closed it")]
    Closed,
}

impl FeedState {
    /// Which sandboxes end soon, since their node is drained.
    pub(crate) fn draining(&self) -> &Draining {
        &self.draining
    }

    /// Whether a snapshot has ever arrived; until then an unknown sandbox may just not have been pushed yet.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.lock().has_snapshot
    }

    /// Whether a sandbox that is not in the table does not exist: the table is complete and the feed is connected.
    pub(crate) fn is_current(&self) -> bool {
        let state = self.lock();
        state.has_snapshot && state.connected
    }

    /// Time since the last message; `None` while not connected.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let state = self.lock();
        state.last_message.filter(|_| state.connected).map(|at| at.elapsed())
    }

    /// Time since the last message, connected or not; `None` before the first one. The table may be this old.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.lock().last_message.map(|at| at.elapsed())
    }

    fn received(&self, snapshot: bool) {
        let mut state = self.lock();
        state.last_message = Some(Instant::now());
        state.connected = true;
        state.has_snapshot |= snapshot;
    }

    fn lost(&self) {
        self.lock().connected = false;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where feed messages are applied.
pub(crate) struct Sink<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) metrics: &'a Metrics,
    pub(crate) state: &'a FeedState,
    /// Asks over the connection of the feed.
    pub(crate) nodes: &'a NodeUsage,
    /// Compares new routes with DNS, if a DNS zone is set.
    pub(crate) checks: Option<&'a Checks>,
}

/// Follows the feed, and reports activity over the same connection, until it is dropped. While the feed is lost the
/// table stays as it is.
pub(crate) async fn follow(dialer: &Dialer, address: &Address, sink: &Sink<'_>, activity: &Activity) {
    let gateway_id = request_id::unique();
    let mut backoff = BACKOFF;
    loop {
        let opened = Instant::now();
        let lost = watch(dialer, address, &gateway_id, sink, activity).await;
        sink.state.lost();
        sink.metrics.feed_reconnects.inc();
        tracing::warn!(address = %address, reason = %lost, "route feed lost, reconnecting");
        // A feed that lived for a while was not refused: the backoff starts over.
        backoff = if opened.elapsed() > MAX_BACKOFF { BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
        tokio::time::sleep(backoff.mul_f64(jitter())).await;
    }
}

/// Returns a random number from 0.5 to 1, different in every gateway.
fn jitter() -> f64 {
    0.5 + f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX) / 2.0
}

async fn watch(
    dialer: &Dialer,
    address: &Address,
    gateway_id: &str,
    sink: &Sink<'_>,
    activity: &Activity,
) -> Lost {
    let opened = tokio::time::timeout(CONNECT_DEADLINE, open(dialer, address, gateway_id)).await;
    let (client, messages, connection) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(lost)) => return lost,
        Err(_) => return Lost::Connect(format!("no answer within {} s", CONNECT_DEADLINE.as_secs())),
    };
    tracing::info!(address = %address, "route feed connected");
    sink.nodes.connected(Some(client.clone()));
    let lost = tokio::select! {
        lost = consume(messages, sink) => lost,
        never = activity.report(client, gateway_id) => match never {},
    };
    sink.nodes.connected(None);
    drop(connection);
    lost
}

/// Applies messages until the feed ends or falls silent.
async fn consume(messages: impl Messages<Item = Result<routes::Update, Status>>, sink: &Sink<'_>) -> Lost {
    let mut messages = std::pin::pin!(messages);
    let (mut confirmation_end, mut begun) = (None, routes::Snapshot::default());
    loop {
        let message = tokio::select! {
            message = tokio::time::timeout(SILENCE, messages.next()) => message,
            () = sleep_until(confirmation_end) => {
                sink.directory.forget_unconfirmed();
                confirmation_end = None;
                continue;
            }
        };
        match message {
            Err(_) => return Lost::Silent,
            Ok(None) => return Lost::Closed,
            Ok(Some(Err(status))) => return Box::new(status).into(),
            Ok(Some(Ok(message))) => {
                let Some(message) = joined(&mut begun, message) else {
                    sink.state.received(false);
                    continue;
                };
                if apply(message, sink) {
                    confirmation_end = Some(Instant::now() + CONFIRMATION_WAIT);
                }
            }
        }
    }
}

/// Joins the messages of a snapshot: `None` for all but its last. Other messages pass.
fn joined(begun: &mut routes::Snapshot, mut message: routes::Update) -> Option<routes::Update> {
    if let Some(Body::Snapshot(part)) = &mut message.body {
        begun.routes.append(&mut part.routes);
        begun.ends.append(&mut part.ends);
        if part.more {
            return None;
        }
        *part = std::mem::take(begun);
    }
    Some(message)
}

/// Completes at `moment`; never, if that is `None`.
async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Applies one message; returns whether it was a snapshot.
fn apply(message: routes::Update, sink: &Sink<'_>) -> bool {
    let changed_at_ms = message.changed_at_ms;
    sink.state.draining().take(&message);
    let Some((update, unreadable)) = Update::from_wire(message) else {
        sink.state.received(false);
        return false;
    };
    for sandbox_id in unreadable {
        tracing::error!(sandbox_id, "route ignored: its address cannot be parsed");
    }
    let snapshot = matches!(update, Update::Snapshot { .. });
    let applied = sink.directory.apply(update);
    sink.metrics.feed_fenced.inc_by(u64::try_from(applied.fenced).unwrap_or(u64::MAX));
    sink.metrics.dns_disagreements.inc_by(u64::try_from(applied.dns_disagreements).unwrap_or(u64::MAX));
    sink.state.received(snapshot);
    if changed_at_ms > 0 {
        sink.metrics.route_lag(since(changed_at_ms));
    }
    if let Some(checks) = sink.checks.filter(|_| !snapshot) {
        for sandbox_id in &applied.changed {
            if let Found::Live(route) = sink.directory.find(sandbox_id) {
                checks.offer(route);
            }
        }
    }
    snapshot
}

/// Returns the time since a moment of another machine's clock; none for one that is still to come by this one's.
fn since(unix_ms: i64) -> Duration {
    let then = UNIX_EPOCH + Duration::from_millis(u64::try_from(unix_ms).unwrap_or_default());
    SystemTime::now().duration_since(then).unwrap_or_default()
}

/// Connects, and requests the feed.
async fn open(
    dialer: &Dialer,
    address: &Address,
    gateway_id: &str,
) -> Result<(RoutesClient<Sender>, tonic::Streaming<routes::Update>, Connection), Lost> {
    let connected = Connection::open(dialer, address).await;
    let (sender, connection) = connected.map_err(|e| Lost::Connect(e.to_string()))?;
    let mut client = RoutesClient::with_origin(sender, Uri::from_static("http://controlplane"))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let request = WatchRequest { gateway_id: gateway_id.to_owned() };
    let messages = client.watch(request).await.map_err(Box::new)?.into_inner();
    Ok((client, messages, connection))
}

#[cfg(test)]
mod tests;
