//! Follows the control plane's feed, and reports to it over the same connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use program::feed_key::FeedKey;
use program::grpc;
use program::transport::Dialer;
use resolve::Address;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};
use wire::egress::egress_client::EgressClient;
use wire::egress::{EgressReport, Update, WatchRequest};

use crate::live::{FRESH, Heard};
use crate::report::Reports;
use crate::sandbox::Common;
use crate::sandboxes::Sandboxes;

/// Three heartbeats (egress.proto): a feed that is silent for longer counts as dead, even if its socket is open.
const SILENCE: Duration = Duration::from_secs(15);

/// How often its silence is looked at, and whether this process has stood still.
const TURN: Duration = Duration::from_secs(1);

/// Timeout for connecting and for the start of the response; and of one report.
const DEADLINE: Duration = Duration::from_secs(5);

/// Backoff of reconnects: doubles up to the longest; each pause is a random part of it, at least half.
const BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Largest message: a snapshot of 20,000 sandboxes of a kilobyte, and their policies.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

type Client = EgressClient<grpc::Sender>;

/// The feed of one replica.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) address: Address,
    pub(crate) key: FeedKey,
    pub(crate) egress_id: String,
    pub(crate) dialer: Dialer,
    pub(crate) common: Arc<Common>,
    pub(crate) heard: Heard,
    pub(crate) draining: watch::Receiver<bool>,
}

/// Why a feed ended.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("{}: {}", .0.code(), .0.message())]
    Refused(#[from] Box<Status>),
    #[error("silent for {} s", SILENCE.as_secs())]
    Silent,
    /// What it has said meanwhile may be no more than what waited in the socket's buffer.
    #[error("this process stood still for more than {} s", FRESH.as_secs())]
    StoodStill,
    #[error("the control plane closed it")]
    Closed,
}

impl Lost {
    fn is_wrong_key(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == Code::Unauthenticated)
    }
}

impl Feed {
    /// Follows the feed until it is dropped. While it is lost, policies and links stay as they are. Once the replica
    /// drains it ends the feed, so that its sandboxes move, and goes on reporting.
    pub(crate) async fn follow(&self, sandboxes: &mut Sandboxes) -> Infallible {
        let mut backoff = BACKOFF;
        let mut refused = false;
        loop {
            let opened = Instant::now();
            let lost = self.watch(sandboxes).await;
            self.heard.lost();
            self.common.metrics.feed_reconnects.inc();
            let was_refused = std::mem::replace(&mut refused, lost.is_wrong_key());
            self.tell(&lost, was_refused);
            backoff = if opened.elapsed() > MAX_BACKOFF { BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
            tokio::time::sleep(backoff.mul_f64(jitter())).await;
        }
    }

    /// Logs why the feed was lost; a key that stays wrong is told once.
    fn tell(&self, lost: &Lost, was_refused: bool) {
        let address = &self.address;
        if !lost.is_wrong_key() {
            tracing::warn!(%address, reason = %lost, "egress feed lost, reconnecting");
        } else if !was_refused {
            tracing::error!(
                %address,
                reason = %lost,
                "the control plane refuses the key of ROLLBOX_EGRESS_FEED_KEY_FILE, trying again"
            );
        }
    }

    async fn watch(&self, sandboxes: &mut Sandboxes) -> Lost {
        let began = Instant::now();
        let late = |_| Lost::Connect(format!("no answer within {} s", DEADLINE.as_secs()));
        let opened = tokio::time::timeout(DEADLINE, self.open()).await.map_err(late).flatten();
        let (client, messages, _connection) = match opened {
            Ok(opened) => opened,
            Err(lost) => return lost,
        };
        tokio::select! {
            lost = self.consume(messages, sandboxes, began) => lost,
            lost = self.report(client) => lost,
        }
    }

    async fn open(&self) -> Result<(Client, Option<tonic::Streaming<Update>>, grpc::Connection), Lost> {
        let connected = grpc::Connection::open(&self.dialer, &self.address).await;
        let (sender, connection) = connected.map_err(|e| Lost::Connect(e.to_string()))?;
        let mut client = EgressClient::with_origin(sender, Uri::from_static("http://controlplane"))
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        if *self.draining.borrow() {
            return Ok((client, None, connection));
        }
        let request = WatchRequest { egress_id: self.egress_id.clone() };
        let messages = client.watch(self.key.signed(request)).await.map_err(Box::new)?.into_inner();
        tracing::info!(address = %self.address, "egress feed connected");
        Ok((client, Some(messages), connection))
    }

    /// Applies messages until the feed ends or falls silent, or this process has stood still since `turned`; for ever,
    /// without messages, once the replica drains.
    async fn consume(
        &self,
        messages: Option<tonic::Streaming<Update>>,
        sandboxes: &mut Sandboxes,
        mut turned: Instant,
    ) -> Lost {
        let Some(mut messages) = messages else { return std::future::pending().await };
        let (mut draining, mut silent_since) = (self.draining.clone(), Instant::now());
        let mut turns = tokio::time::interval(TURN);
        loop {
            let message = tokio::select! {
                message = messages.message() => Some(message),
                _ = turns.tick() => None,
                () = started(&mut draining) => {
                    drop(messages);
                    self.heard.lost();
                    return std::future::pending().await;
                }
            };
            if turned.elapsed() > FRESH {
                return Lost::StoodStill;
            }
            turned = Instant::now();
            match message {
                None if silent_since.elapsed() > SILENCE => return Lost::Silent,
                None => {}
                Some(Ok(None)) => return Lost::Closed,
                Some(Err(status)) => return Box::new(status).into(),
                Some(Ok(Some(message))) => {
                    silent_since = turned;
                    self.heard.now(sandboxes.take(message));
                }
            }
        }
    }

    /// Reports what waits, at once or every second, until a report is not taken.
    async fn report(&self, mut client: Client) -> Lost {
        let reports: &Reports = &self.common.reports;
        loop {
            reports.due().await;
            let Some(report) = reports.take(&self.egress_id) else { continue };
            // Also where the feed is lost while it is under way.
            let restored = Restored { reports, report: Some(report.clone()) };
            let dropped = report.dropped_attempts;
            match tokio::time::timeout(DEADLINE, client.report(self.key.signed(report))).await {
                Ok(Ok(_)) => {
                    restored.arrived();
                    self.common.metrics.attempts_unreported.inc_by(dropped);
                }
                Ok(Err(status)) => return Box::new(status).into(),
                Err(_) => {
                    return Lost::Connect(format!("a report was not taken within {} s", DEADLINE.as_secs()));
                }
            }
        }
    }
}

/// A report that is put back when this is dropped, unless it has arrived.
struct Restored<'a> {
    reports: &'a Reports,
    report: Option<EgressReport>,
}

impl Restored<'_> {
    fn arrived(mut self) {
        self.report = None;
        self.reports.arrived();
    }
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            self.reports.restore(report);
        }
    }
}

/// Completes when the drain has.
async fn started(draining: &mut watch::Receiver<bool>) {
    // An error: the process ends.
    drop(draining.wait_for(|draining| *draining).await);
}

/// Returns a random number from 0.5 to 1, different in every replica.
fn jitter() -> f64 {
    0.5 + f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX) / 2.0
}
