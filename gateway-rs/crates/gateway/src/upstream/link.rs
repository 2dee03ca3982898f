use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use resolve::{Address, Route};
use tokio::time::Instant;

use super::outgoing::Outgoing;
use super::pool::Pool;
use crate::telemetry::Connects;
use crate::transport::{Dialer, Stream};

/// All attempts to connect together. A sidecar is on the same node or network: its accept takes well under a
/// millisecond, so two seconds of refusals mean that it is gone.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// Pauses between attempts: bounded, and short enough for a sidecar that is just about to listen.
const CONNECT_PAUSES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
];

/// A connection without calls is closed after one to two of these: an idle sandbox costs a table row. Opening costs
/// about 0.2 ms on a unix socket.
const IDLE: Duration = Duration::from_secs(60);

/// A peer that vanished without a word (its node lost power) is noticed after the sum of the two, also while no call is
/// under way: else the next one would pay for it. The answer may take a while where the cores of a node are all taken (guess). Unix
/// sockets do not vanish like that.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What one stream may bring before we have read it: the memory of a slow reader.
/// Under gVisor each word that there is room again costs the sandbox more than to fill it, so there are to be few of them.
const STREAM_BYTES: u32 = 512 << 10;

/// What of one stream may wait to be sent: the memory of a slow sandbox.
const SEND_BYTES: usize = 256 << 10;

/// What a sidecar may send in one piece. With the least that HTTP/2 allows (16 KiB) most of the time goes into waking one
/// another.
const FRAME_BYTES: u32 = 256 << 10;

/// What all streams of a connection may bring before we have read it: twice what those can hold that a sandbox may have
/// (`ROLLBOX_GATEWAY_MAX_STREAMS_PER_SANDBOX` is at most 256), so that slow readers never stop an exec.
const CONNECTION_BYTES: u32 = 2 * 256 * STREAM_BYTES;

pub(super) type Sender = SendRequest<Outgoing>;
type Connection = hyper::client::conn::http2::Connection<TokioIo<Stream>, Outgoing, TokioExecutor>;

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
    /// Leases under way; changed only under the pool's lock when it grows, so that an idle link stays idle while it
    /// is taken out.
    leases: AtomicUsize,
    sender: Mutex<Option<Sender>>,
    /// Held while connecting, so that many first calls open one connection; the latest failure and when it was.
    connecting: tokio::sync::Mutex<Option<(Instant, Unreachable)>>,
}

impl Link {
    pub(super) fn new(route: Arc<Route>) -> Self {
        Self {
            route,
            leases: AtomicUsize::new(0),
            sender: Mutex::new(None),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn count_in(&self) {
        self.leases.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_out(&self) {
        self.leases.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.leases.load(Ordering::Relaxed) == 0
    }

    /// The connection, opened when there is none.
    ///
    /// # Errors
    /// [`Unreachable`] when no attempt succeeded before the deadline; the same one for all who waited for it, because
    /// each trying in turn would make the last of them wait for the deadlines of all.
    ///
    /// # Cancel safety
    /// Cancel safe: the next one who waits goes on.
    pub(super) async fn sender(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<Sender, Unreachable> {
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
        let connected = connect(&pool.dialer, &self.route.address).await;
        pool.metrics.connect(if connected.is_ok() { Connects::Connected } else { Connects::Failed });
        let (sender, connection) = connected.inspect_err(|e| *failure = Some((Instant::now(), e.clone())))?;
        *self.lock() = Some(sender.clone());
        pool.drivers.spawn(drive(Arc::clone(pool), Arc::clone(self), connection));
        Ok(sender)
    }

    /// Sends nothing more over the connection; calls on it go on.
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

/// Moves the connection's bytes until it breaks, the route ends or nobody has used it for a while.
async fn drive(pool: Arc<Pool>, link: Arc<Link>, connection: Connection) {
    let (mut connection, mut over) = (std::pin::pin!(connection), std::pin::pin!(link.route.over()));
    let mut was_idle = false;
    loop {
        tokio::select! {
            // How it broke is told to the calls on it, each by its own error.
            _ = &mut connection => return,
            _ = &mut over => return pool.forget(&link),
            () = pool.closing.cancelled() => return,
            () = tokio::time::sleep(IDLE) => {
                if was_idle && pool.forget_if_idle(&link) {
                    return;
                }
                was_idle = link.is_idle();
            }
        }
    }
}

async fn connect(dialer: &Dialer, address: &Address) -> Result<(Sender, Connection), Unreachable> {
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
