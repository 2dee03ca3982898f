use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use resolve::{Address, Route};
use tokio::time::Instant;

use super::outgoing::Outgoing;
use program::transport::{Dialer, Stream};

/// Timeout of all attempts to connect together. A sidecar is on the same node or network and accepts in well under a
/// millisecond, so two seconds of refusals mean that it has gone.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// Pauses between attempts: bounded, and short enough for a sidecar that is about to listen.
const CONNECT_PAUSES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
];

/// HTTP/2 pings detect a peer that vanished without closing (its node lost power) after the sum of the two, also while
/// no call is under way: otherwise the next call would have to wait for that. A pong may take a while where all cores
/// of a node are busy (an estimate). Unix sockets do not vanish like that.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Window of one stream, what it may bring before it is read: the memory of a slow reader. Under gVisor a window update
/// costs the sandbox more than filling the window, so there should be few of them.
const STREAM_BYTES: u32 = 512 << 10;

/// What of one stream may wait to be sent: the memory of a slow sandbox.
const SEND_BYTES: usize = 256 << 10;

/// Largest frame of a sidecar. With the least that HTTP/2 allows (16 KiB) most of the time goes into wakeups of both
/// sides.
const FRAME_BYTES: u32 = 256 << 10;

/// Window of a connection: twice what the streams hold that a sandbox may have
/// (`ROLLBOX_GATEWAY_MAX_STREAMS_PER_SANDBOX` is at most 256), so that slow readers never stop an exec.
const CONNECTION_BYTES: u32 = 2 * 256 * STREAM_BYTES;

pub(super) type Sender = SendRequest<Outgoing>;
pub(super) type Connection = hyper::client::conn::http2::Connection<TokioIo<Stream>, Outgoing, TokioExecutor>;

/// The sidecar could not be reached; nothing was sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{address} does not answer: {reason}")]
pub(crate) struct Unreachable {
    address: Address,
    reason: String,
}

/// One sandbox's connection, open or not.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) route: Arc<Route>,
    /// Number of leases. Grows from 0 only under the pool's lock, so that an idle link stays idle while it is removed
    /// from the pool.
    leases: AtomicUsize,
    /// Number of leases there have been, which shows use between two checks. It may wrap.
    uses: AtomicUsize,
    sender: Mutex<Option<Sender>>,
    /// Held while connecting, so that many first calls open one connection; the value is the latest failure and its
    /// time.
    connecting: tokio::sync::Mutex<Option<(Instant, Unreachable)>>,
}

impl Link {
    pub(super) fn new(route: Arc<Route>) -> Self {
        Self {
            route,
            leases: AtomicUsize::new(0),
            uses: AtomicUsize::new(0),
            sender: Mutex::new(None),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn count_in(&self) {
        self.leases.fetch_add(1, Ordering::Relaxed);
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_out(&self) {
        self.leases.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.leases.load(Ordering::Relaxed) == 0
    }

    /// Number of leases there have been.
    pub(super) fn uses(&self) -> usize {
        self.uses.load(Ordering::Relaxed)
    }

    /// Returns the connection; `open` opens one if there is none.
    ///
    /// # Errors
    /// That of `open`. All callers that waited for the attempt get the
    /// same error: if each tried in turn, the last would wait for the deadlines of all.
    ///
    /// # Cancel safety
    /// Cancel safe: the next caller that waits continues.
    pub(super) async fn sender(
        &self,
        open: impl Future<Output = Result<Sender, Unreachable>>,
    ) -> Result<Sender, Unreachable> {
        if let Some(sender) = self.open() {
            return Ok(sender);
        }
        let asked = Instant::now();
        let mut failure = self.connecting.lock().await;
        if let Some(sender) = self.open() {
            return Ok(sender);
        }
        if let Some((_, unreachable)) = failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(unreachable.clone());
        }
        let sender = open.await.inspect_err(|e| *failure = Some((Instant::now(), e.clone())))?;
        *self.lock() = Some(sender.clone());
        Ok(sender)
    }

    /// Sends nothing more over the connection; calls on it continue.
    pub(super) fn retire(&self) {
        *self.lock() = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn open(&self) -> Option<Sender> {
        self.lock().as_ref().filter(|sender| !sender.is_closed()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to a sidecar.
///
/// # Errors
/// [`Unreachable`] when no attempt succeeded before the deadline.
pub(super) async fn connect(dialer: &Dialer, address: &Address) -> Result<(Sender, Connection), Unreachable> {
    let deadline = Instant::now() + CONNECT_DEADLINE;
    let mut pauses = CONNECT_PAUSES.into_iter();
    loop {
        let reason = match tokio::time::timeout_at(deadline, attempt(dialer, address)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no answer within {} ms", CONNECT_DEADLINE.as_millis()),
        };
        let pause = pauses.next().filter(|pause| Instant::now() + *pause < deadline);
        let Some(pause) = pause else { return Err(Unreachable { address: address.clone(), reason }) };
        tokio::time::sleep(pause).await;
    }
}

async fn attempt(dialer: &Dialer, address: &Address) -> Result<(Sender, Connection), String> {
    let stream = dialer.connect(address).await.map_err(|e| e.to_string())?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(STREAM_BYTES)
        .initial_connection_window_size(CONNECTION_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_send_buf_size(SEND_BYTES);
    if matches!(address, Address::Tcp { .. }) {
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
    }
    builder.handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())
}
