use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream as Messages, StreamExt as _, stream};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use wire::agent::{WriteArchiveRequest, WriteFileRequest};
use wire::{Code, Problem};

use super::operation::Operation;
use crate::call::{self, GONE_WAIT};
use crate::http::body::Timed;
use crate::leg::Leg;
use crate::telemetry::{Direction, Metrics, Open, Stream};
use program::transport;

/// Data in one message: with its head this is one frame of a sidecar's connection (128 KiB).
const MESSAGE_BYTES: usize = (128 << 10) - 64;

/// A body of at most this size goes with the first message: one message less is one wake-up less in the sandbox.
const SMALL_BODY_BYTES: usize = 60 << 10;

/// What is written to a leg at once; larger pieces of a body are written as they come.
const WRITE_BYTES: usize = 128 << 10;

/// How long the error of a leg waits for the call, which breaks together with it and says why: at once, or when the
/// cause of the sandbox's end is known. This is longer than both.
const ANSWER_WAIT: Duration = GONE_WAIT.saturating_add(Duration::from_secs(2));

/// The fields of an upload's messages after the first.
#[derive(Default)]
pub(super) struct Piece {
    data: Bytes,
    eof: bool,
    moved: bool,
    moved_bytes: u64,
}

impl From<Piece> for WriteFileRequest {
    fn from(Piece { data, eof, moved, moved_bytes }: Piece) -> Self {
        Self { data, eof, moved, moved_bytes, ..Self::default() }
    }
}

impl From<Piece> for WriteArchiveRequest {
    fn from(Piece { data, eof, moved, moved_bytes }: Piece) -> Self {
        Self { data, eof, moved, moved_bytes, ..Self::default() }
    }
}

/// What must live until the call has answered. When a leg is closed before its bytes were received, the kernel keeps
/// trying to send them only for a short time.
pub(super) type Held = (DropGuard, Open, Option<Moved>);

/// The leg that carries the data, and how many bytes it has carried.
pub(super) struct Moved {
    leg: BufWriter<transport::Stream>,
    bytes: u64,
}

impl Moved {
    async fn write(&mut self, data: &[u8]) -> Result<(), Problem> {
        self.bytes += u64::try_from(data.len()).unwrap_or(0);
        or_answered(self.leg.write_all(data)).await
    }
}

/// Sends the data of an upload.
pub(super) struct Feed<M> {
    // The order matters: dropped in the middle, the guard aborts the stream before its messages end.
    guard: DropGuard,
    messages: mpsc::Sender<M>,
    leg: Leg,
    metrics: Arc<Metrics>,
    open: Open,
}

impl<M: From<Piece> + Send + 'static> Feed<M> {
    /// Returns the request that begins with `first`, which has the ticket of `leg`, and the feed of its other
    /// messages.
    pub(super) fn new(
        first: M,
        leg: Leg,
        operation: &Operation,
    ) -> (tonic::Request<impl Messages<Item = M> + Send + 'static>, Self) {
        let (sender, receiver) = mpsc::channel(1);
        let rest =
            stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        let messages = stream::iter([first]).chain(rest);
        let (request, guard) = call::streamed(messages, &operation.bearer.header, operation.place());
        let metrics = Arc::clone(operation.calls.metrics());
        let open = Open::new(&metrics, Stream::Upload);
        (request, Self { guard, messages: sender, leg, metrics, open })
    }

    /// What there is to feed when the first message had all data.
    pub(super) fn done(self) -> Held {
        (self.guard, self.open, None)
    }

    /// Forwards a client's body to the sidecar, as fast as the sidecar takes it.
    ///
    /// # Errors
    /// The body could not be read, or the leg broke and the call did not say why.
    pub(super) async fn pump(mut self, body: &mut Timed) -> Result<Held, Problem> {
        let mut gathered = BytesMut::new();
        let mut moved = None;
        while let Some(mut data) = next(body, &self.metrics).await? {
            while moved.is_none() && !data.is_empty() {
                moved = self.gather(&mut gathered, &mut data).await;
            }
            if let Some(moved) = &mut moved {
                moved.write(&data).await?;
            }
        }
        if let Some(moved) = &mut moved {
            or_answered(moved.leg.shutdown()).await?;
        }
        let moved_bytes = moved.as_ref().map_or(0, |moved| moved.bytes);
        self.send(Piece { data: gathered.freeze(), eof: true, moved_bytes, ..Piece::default() }).await;
        Ok((self.guard, self.open, moved))
    }

    /// Takes from `data` until a message is full and sends it. Smaller messages would bring nothing: one costs the
    /// sandbox more than its bytes, and the file is visible only once it is complete. Returns the leg, if all further
    /// data go there.
    async fn gather(&mut self, gathered: &mut BytesMut, data: &mut Bytes) -> Option<Moved> {
        if gathered.is_empty() {
            gathered.reserve(MESSAGE_BYTES);
        }
        gathered.extend_from_slice(&data.split_to(data.len().min(MESSAGE_BYTES - gathered.len())));
        if gathered.len() < MESSAGE_BYTES {
            return None;
        }
        self.send(Piece { data: gathered.split().freeze(), ..Piece::default() }).await;
        self.leg.count(MESSAGE_BYTES);
        let leg = self.leg.opened().await?;
        self.send(Piece { moved: true, ..Piece::default() }).await;
        Some(Moved { leg: BufWriter::with_capacity(WRITE_BYTES, leg), bytes: 0 })
    }

    async fn send(&mut self, piece: Piece) {
        if self.messages.send(piece.into()).await.is_err() {
            // The sidecar has ended the call; its answer says why.
            std::future::pending::<()>().await;
        }
    }
}

/// Reads the whole of a body that is announced to be small, and nothing of another one; returns whether all was read.
///
/// # Errors
/// The body could not be read.
pub(super) async fn small(
    body: &mut Timed,
    announced: Option<u64>,
    metrics: &Metrics,
) -> Result<(Bytes, bool), Problem> {
    let mut data = BytesMut::new();
    if announced.is_none_or(|size| size > SMALL_BODY_BYTES as u64) {
        return Ok((data.freeze(), false));
    }
    while data.len() <= SMALL_BODY_BYTES {
        match next(body, metrics).await? {
            Some(piece) => data.extend_from_slice(&piece),
            None => return Ok((data.freeze(), true)),
        }
    }
    // Its sender was wrong about the size, which the sandbox finds at the end.
    Ok((data.freeze(), false))
}

async fn next(body: &mut Timed, metrics: &Metrics) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|broken| {
            Problem::new(Code::InvalidArgument, format!("the body could not be read: {broken}"))
        })?;
        if let Ok(data) = frame.into_data() {
            metrics.streamed(Stream::Upload, Direction::In, data.len());
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Awaits an operation on a leg. Its error is delayed, since the call's answer says more.
async fn or_answered(done: impl Future<Output = io::Result<()>>) -> Result<(), Problem> {
    let Err(error) = done.await else { return Ok(()) };
    tokio::time::sleep(ANSWER_WAIT).await;
    let detail = format!("the connection that brings the data to the sandbox broke: {error}");
    Err(Problem::new(Code::StreamInterrupted, detail))
}
