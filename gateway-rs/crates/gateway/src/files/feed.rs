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
use crate::body::Timed;
use crate::call;
use crate::leg::Leg;
use crate::telemetry::{Direction, Metrics, Open, Stream};
use crate::transport;

/// Data in one message: with its head what a sidecar takes as one frame (128 KiB).
const MESSAGE_BYTES: usize = (128 << 10) - 64;

/// What goes over a leg at once; larger pieces of a body go as they come.
const WRITE_BYTES: usize = 128 << 10;

/// A leg that broke was mostly closed by a sidecar that has ended the call, whose answer then comes at once.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// A message of an upload after its first.
pub(super) trait Part: Default + Send + 'static {
    fn data(data: Bytes, eof: bool) -> Self;
    fn moved() -> Self;
}

impl Part for WriteFileRequest {
    fn data(data: Bytes, eof: bool) -> Self {
        Self { data, eof, ..Self::default() }
    }

    fn moved() -> Self {
        Self { moved: true, ..Self::default() }
    }
}

impl Part for WriteArchiveRequest {
    fn data(data: Bytes, eof: bool) -> Self {
        Self { data, eof, ..Self::default() }
    }

    fn moved() -> Self {
        Self { moved: true, ..Self::default() }
    }
}

/// What must live until the call has answered.
pub(super) type Held = (DropGuard, Open);

/// Where the data of an upload go in.
pub(super) struct Feed<M> {
    // In this order: dropped in the middle, the stream breaks off before its messages end.
    guard: DropGuard,
    messages: mpsc::Sender<M>,
    leg: Leg,
    metrics: Arc<Metrics>,
    open: Open,
}

impl<M: Part> Feed<M> {
    /// The request that begins with `first`, which names the ticket of `leg`, and what feeds it.
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
        let metrics = Arc::clone(&operation.gateway.metrics);
        let open = Open::new(&metrics, Stream::Upload);
        (request, Self { guard, messages: sender, leg, metrics, open })
    }

    /// Moves a client's body to the sidecar, as fast as that takes it.
    ///
    /// # Errors
    /// The body could not be read, or the leg broke and the call does not say why.
    pub(super) async fn pump(mut self, body: &mut Timed) -> Result<Held, Problem> {
        let mut gathered = BytesMut::new();
        let mut moved = None;
        while let Some(mut data) = self.next(body).await? {
            while moved.is_none() && !data.is_empty() {
                moved = self.gather(&mut gathered, &mut data).await;
            }
            if let Some(leg) = &mut moved {
                or_answered(leg.write_all(&data)).await?;
            }
        }
        if let Some(leg) = &mut moved {
            or_answered(leg.shutdown()).await?;
        }
        self.send(M::data(gathered.freeze(), true)).await;
        Ok((self.guard, self.open))
    }

    async fn next(&mut self, body: &mut Timed) -> Result<Option<Bytes>, Problem> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|broken| {
                Problem::new(Code::InvalidArgument, format!("the body could not be read: {broken}"))
            })?;
            if let Ok(data) = frame.into_data() {
                self.metrics.streamed(Stream::Upload, Direction::In, data.len());
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Takes of `data` what makes a full message (one costs the sandbox more than its bytes, and nobody sees a file before
    /// its end). The leg, if all that follows goes there.
    async fn gather(
        &mut self,
        gathered: &mut BytesMut,
        data: &mut Bytes,
    ) -> Option<BufWriter<transport::Stream>> {
        if gathered.is_empty() {
            gathered.reserve(MESSAGE_BYTES);
        }
        gathered.extend_from_slice(&data.split_to(data.len().min(MESSAGE_BYTES - gathered.len())));
        if gathered.len() < MESSAGE_BYTES {
            return None;
        }
        self.send(M::data(gathered.split().freeze(), false)).await;
        self.leg.count(MESSAGE_BYTES);
        let leg = self.leg.opened().await?;
        self.send(M::moved()).await;
        Some(BufWriter::with_capacity(WRITE_BYTES, leg))
    }

    async fn send(&mut self, message: M) {
        if self.messages.send(message).await.is_err() {
            // The sidecar has ended the call; its answer says why.
            std::future::pending::<()>().await;
        }
    }
}

/// What was done on a leg. Its error waits: the call's answer says more.
async fn or_answered(done: impl Future<Output = io::Result<()>>) -> Result<(), Problem> {
    let Err(error) = done.await else { return Ok(()) };
    tokio::time::sleep(ANSWER_PATIENCE).await;
    let detail = format!("the connection that brings the data to the sandbox broke: {error}");
    Err(Problem::new(Code::StreamInterrupted, detail))
}
