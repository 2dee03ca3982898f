//! The sidecar's end of the socket: sends orders, and routes reports to the calls that wait for them.

use std::collections::HashMap;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::{Code, Problem};

use super::frame::{Abandon, HEADER_BYTES, MAX_FRAME_BYTES, Order, Report, frame_length};
use crate::problem::arguments_too_large;
use crate::sys;
use crate::usage::Disk;

/// Orders in the queue to the spawner; further ones wait in their callers (backpressure).
const QUEUE: usize = 64;
/// A process has at most three reports: its start, its end and the end of a kill. A ping has one.
const REPORTS: usize = 4;
const CHUNK_BYTES: usize = 4 << 10;

/// SmallWatch for reading only: otherwise the spawner would wake this process with every order that it takes, only to show
/// that there is room for another one.
type Socket = AsyncFd<StdStream>;

/// The reports for one number. `None` means that the spawner is gone.
pub type Reports = mpsc::Receiver<Report>;

type Listeners = Arc<Mutex<HashMap<u64, mpsc::Sender<Report>>>>;

struct Parcel {
    frame: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Sends orders to the spawner. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Link {
    orders: mpsc::Sender<Parcel>,
    listeners: Listeners,
    next_id: Arc<AtomicU64>,
}

/// Receives the reports for one number, until this is dropped.
#[derive(Debug)]
pub struct Subscription {
    /// The number that orders for it carry.
    pub id: u64,
    /// The reports for it.
    pub reports: Reports,
    listeners: Listeners,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.listeners).remove(&self.id);
    }
}

/// The first report, and the link for orders from then on.
#[derive(Debug)]
pub struct Connection {
    /// Sends orders.
    pub link: Link,
    /// Drives the connection; completes when the spawner is gone.
    pub driver: tokio::task::JoinHandle<()>,
    /// The first report, a `Report::Ready`.
    pub ready: Report,
}

/// Waits for the spawner's first report and starts the connection. Must be called in a runtime.
///
/// # Errors
/// The spawner's own problem when it could not enter the sandbox; `internal` when it ended without a report.
pub async fn connect(socket: StdStream) -> Result<Connection, Problem> {
    let silent =
        |err: io::Error| Problem::new(Code::Internal, format!("the spawner ended without a report: {err}"));
    socket.set_nonblocking(true).map_err(silent)?;
    let stream = sys::watch(socket, Interest::READABLE).map_err(silent)?;
    let mut inbox = Inbox::default();
    let ready = match inbox.next(&stream).await.map_err(silent)? {
        ready @ Report::Ready { .. } => ready,
        Report::Failed { code, detail } => {
            return Err(Problem::new(Code::from_name(&code).unwrap_or(Code::Internal), detail));
        }
        other => return Err(silent(io::Error::other(format!("unexpected first report {other:?}")))),
    };
    let (orders, queue) = mpsc::channel(QUEUE);
    let listeners = Listeners::default();
    let driver = tokio::spawn(drive(stream, inbox, queue, Arc::clone(&listeners)));
    Ok(Connection { link: Link { orders, listeners, next_id: Arc::default() }, driver, ready })
}

impl Link {
    /// Makes a fresh number and subscribes to its reports.
    pub fn subscribe(&self) -> Subscription {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, reports) = mpsc::channel(REPORTS);
        lock(&self.listeners).insert(id, sender);
        Subscription { id, reports, listeners: Arc::clone(&self.listeners) }
    }

    /// Sends an order with the descriptors that belong to it. Waits while the queue is full.
    ///
    /// # Errors
    /// `invalid_argument`: the order is too long, and the spawner would end the connection because of it.
    /// `sandbox_lost`: the spawner is gone.
    pub async fn send(&self, order: &Order, descriptors: Vec<OwnedFd>) -> Result<(), Problem> {
        let frame = order.encode();
        let length = frame.len() - HEADER_BYTES;
        if length > MAX_FRAME_BYTES {
            let detail = format!(
                "arguments and environment, the claim's included, take {length} bytes; the limit is {MAX_FRAME_BYTES}"
            );
            return Err(arguments_too_large(detail).with("limit_bytes", MAX_FRAME_BYTES));
        }
        let parcel = Parcel { frame, descriptors };
        self.orders.send(parcel).await.map_err(|_| lost())
    }

    /// Proves that the spawner answers.
    ///
    /// # Errors
    /// `sandbox_lost`: the spawner is gone.
    pub async fn ping(&self) -> Result<(), Problem> {
        let mut subscription = self.subscribe();
        self.send(&Order::Ping { nonce: subscription.id }, Vec::new()).await?;
        subscription.reports.recv().await.map(drop).ok_or_else(lost)
    }

    /// Kills what a command of a shell has started, and continues the shell with a signal: see [`Order::Abandon`].
    ///
    /// # Errors
    /// `sandbox_lost`: the spawner is gone.
    pub async fn abandon(
        &self,
        shell: u64,
        signal: u32,
        command_id: String,
        spared: Vec<u32>,
    ) -> Result<(), Problem> {
        let mut subscription = self.subscribe();
        let order = Abandon { id: subscription.id, shell, signal, command_id, spared };
        self.send(&Order::Abandon(order), Vec::new()).await?;
        subscription.reports.recv().await.map(drop).ok_or_else(lost)
    }

    /// Kills every process of the sandbox; returns how many are still there after some seconds.
    ///
    /// # Errors
    /// `sandbox_lost`: the spawner is gone.
    pub async fn kill_all(&self) -> Result<u32, Problem> {
        let mut subscription = self.subscribe();
        self.send(&Order::KillAll { id: subscription.id }, Vec::new()).await?;
        match subscription.reports.recv().await {
            Some(Report::Swept { left, .. }) => Ok(left),
            _ => Err(lost()),
        }
    }

    /// How full the target's root file system is.
    ///
    /// # Errors
    /// `sandbox_lost`: the spawner is gone.
    pub async fn disk(&self) -> Result<Disk, Problem> {
        let mut subscription = self.subscribe();
        self.send(&Order::Disk { nonce: subscription.id }, Vec::new()).await?;
        match subscription.reports.recv().await {
            Some(Report::Disk { disk, .. }) => Ok(disk),
            _ => Err(lost()),
        }
    }
}

/// The problem when the spawner is gone, and with it every process of the sandbox.
pub fn lost() -> Problem {
    Problem::new(Code::SandboxLost, "the sandbox's init is gone, and with it every process of the sandbox")
}

async fn drive(stream: Socket, mut inbox: Inbox, mut queue: mpsc::Receiver<Parcel>, listeners: Listeners) {
    let receive = async {
        while let Ok(report) = inbox.next(&stream).await {
            deliver(&listeners, report);
        }
    };
    let send = async {
        while let Some(parcel) = queue.recv().await {
            if send_all(&stream, parcel).await.is_err() {
                break;
            }
        }
    };
    tokio::select! { () = receive => {}, () = send => {} }
    // The closed channels inform every caller that still waits.
    lock(&listeners).clear();
}

fn deliver(listeners: &Listeners, report: Report) {
    let id = match &report {
        Report::Spawned { id, .. }
        | Report::Refused { id, .. }
        | Report::Ended { id, .. }
        | Report::Swept { id, .. }
        | Report::Disk { nonce: id, .. }
        | Report::Pong { nonce: id } => *id,
        Report::Ready { .. } | Report::Failed { .. } => return,
    };
    if let Some(listener) = lock(listeners).get(&id) {
        // Never full: the spawner sends no more reports for a number than fit.
        let _ = listener.try_send(report);
    }
}

/// Sends the descriptors with the first bytes and closes them here as soon as those are sent: otherwise a command's
/// pipes would never reach their end.
async fn send_all(stream: &Socket, parcel: Parcel) -> io::Result<()> {
    let Parcel { frame, mut descriptors } = parcel;
    let mut sent = 0;
    while sent < frame.len() {
        let rights: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&rights)];
        let control = if rights.is_empty() { &[] } else { &control[..] };
        let rest = [IoSlice::new(&frame[sent..])];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<()>(stream.as_raw_fd(), &rest, control, flags, None) {
            Ok(count) => {
                sent += count;
                descriptors.clear();
            }
            Err(Errno::EAGAIN) => writable(stream).await?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

async fn writable(stream: &Socket) -> io::Result<()> {
    // A second descriptor, since the runtime watches each descriptor only once.
    UnixStream::from_std(stream.get_ref().try_clone()?)?.writable().await
}

/// Received bytes that are not a complete report yet.
#[derive(Debug, Default)]
struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    async fn next(&mut self, stream: &Socket) -> io::Result<Report> {
        loop {
            if let Some(report) = self.take()? {
                return Ok(report);
            }
            let mut ready = stream.readable().await?;
            let mut chunk = [0; CHUNK_BYTES];
            match ready.try_io(|stream| stream.get_ref().read(&mut chunk)) {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Ok(count)) => {
                    self.bytes.extend_from_slice(&chunk[..count]);
                    // All bytes that were there have been read; another read would only return `WouldBlock`.
                    if count < CHUNK_BYTES {
                        ready.clear_ready();
                    }
                }
                Ok(Err(err)) => return Err(err),
                Err(_would_block) => {}
            }
        }
    }

    fn take(&mut self) -> io::Result<Option<Report>> {
        let malformed = |_| io::Error::from(io::ErrorKind::InvalidData);
        let Some(length) = frame_length(&self.bytes).map_err(malformed)? else {
            return Ok(None);
        };
        let Some(body) = self.bytes.get(HEADER_BYTES..length) else {
            return Ok(None);
        };
        let report = Report::decode(body).map_err(malformed)?;
        self.bytes.drain(..length);
        Ok(Some(report))
    }
}

/// Ignores poisoning: no code panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[tokio::test]
    async fn reports_reach_the_one_who_asked_and_a_lost_spawner_reaches_all() {
        let (ours, mut theirs) = StdStream::pair().unwrap();
        let ready = Report::Ready { kernel: "k".into(), target_found_us: 1, entered_us: 2 };
        theirs.write_all(&ready.encode()).unwrap();
        let connection = connect(ours).await.unwrap();
        assert_eq!(connection.ready, ready);

        let (mut first, mut second) = (connection.link.subscribe(), connection.link.subscribe());
        theirs.write_all(&Report::Swept { id: second.id, left: 3 }.encode()).unwrap();
        assert_eq!(second.reports.recv().await, Some(Report::Swept { id: second.id, left: 3 }));
        drop(theirs);
        connection.driver.await.unwrap();
        assert_eq!(first.reports.recv().await, None);
        assert_eq!(connection.link.ping().await.unwrap_err().code, Code::SandboxLost);
    }

    #[tokio::test]
    async fn a_long_order_arrives_whole_with_its_descriptors() {
        let (ours, theirs) = StdStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = sys::watch(ours, Interest::READABLE).unwrap();
        let frame = vec![7; 1 << 20];
        let null = std::fs::File::open("/dev/null").unwrap();
        let parcel = Parcel { frame: frame.clone(), descriptors: vec![null.into()] };
        let reader = tokio::task::spawn_blocking(move || {
            let (mut seen, mut descriptors) = (Vec::new(), std::collections::VecDeque::new());
            let mut chunk = vec![0; 1 << 16];
            while seen.len() < 1 << 20 {
                if let Ok(count) = crate::sys::receive(theirs.as_fd(), &mut chunk, &mut descriptors) {
                    seen.extend_from_slice(&chunk[..count]);
                }
            }
            (seen, descriptors.len())
        });
        send_all(&stream, parcel).await.unwrap();
        assert_eq!(reader.await.unwrap(), (frame, 1));
    }

    #[tokio::test]
    async fn a_failed_start_is_reported_with_its_code() {
        let (ours, mut theirs) = StdStream::pair().unwrap();
        let failed = Report::Failed { code: "start_timeout".into(), detail: "no target".into() };
        theirs.write_all(&failed.encode()).unwrap();
        assert_eq!(connect(ours).await.unwrap_err(), Problem::new(Code::StartTimeout, "no target"));
    }
}
