use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::BytesMut;
use tokio_util::io::poll_read_buf;
use tonic::{Status, Streaming};
use wire::agent::FileChunk;

use crate::coalesced::Coalesced;
use crate::leg::Leg;

/// How much is read from a leg at once, and the free space below which the buffer gets new memory.
const READ_BYTES: usize = 256 << 10;
const LEAST_BYTES: usize = READ_BYTES / 4;

/// The chunks of a download, as messages of the call or as bytes of a leg.
pub(super) struct Chunks {
    messages: Coalesced<FileChunk>,
    leg: Leg,
    moved: bool,
    buffer: BytesMut,
    /// What the call delivered before the leg was at its end.
    early: Option<Option<FileChunk>>,
    /// Whether the last chunk has come, which has a digest; until then the data may be incomplete.
    whole: bool,
}

impl Chunks {
    pub(super) fn new(messages: Streaming<FileChunk>, leg: Leg) -> Self {
        let (moved, buffer, early, whole) = (false, BytesMut::new(), None, false);
        Self { messages: messages.into(), leg, moved, buffer, early, whole }
    }

    /// The next chunk; `None` at the end.
    ///
    /// # Errors
    /// The call failed, the leg broke, or the data ended without their digest.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<FileChunk>, Status> {
        loop {
            if self.moved {
                if self.read().await? > 0 {
                    let data = self.buffer.split().freeze();
                    return Ok(Some(FileChunk { data, ..FileChunk::default() }));
                }
                // The call reports how the data ended.
                self.moved = false;
            }
            let chunk = match self.early.take() {
                Some(early) => early,
                None => self.message().await?,
            };
            match chunk {
                Some(FileChunk { moved: true, .. }) => self.moved = true,
                None if !self.whole => return Err(Status::cancelled("the data ended without their digest")),
                chunk => return Ok(chunk.inspect(|chunk| self.note(chunk))),
            }
        }
    }

    /// The next chunk if it has already arrived as a message and `fits`.
    pub(super) fn ready(&mut self, fits: impl FnOnce(&FileChunk) -> bool) -> Option<FileChunk> {
        if self.moved || self.early.is_some() {
            return None;
        }
        let chunk = self.messages.ready(|next| !next.moved && fits(next))?;
        self.note(&chunk);
        Some(chunk)
    }

    fn note(&mut self, chunk: &FileChunk) {
        self.leg.count(chunk.data.len());
        self.whole |= !chunk.sha256.is_empty();
    }

    async fn message(&mut self) -> Result<Option<FileChunk>, Status> {
        let Self { messages, leg, .. } = self;
        let mut next = pin!(messages.message());
        poll_fn(|cx| {
            // Makes progress with the leg's connection; whichever is ready first wakes this task.
            let _ = leg.poll_dial(cx);
            next.as_mut().poll(cx)
        })
        .await
    }

    /// Reads from the leg into the buffer; returns 0 at its end. Polls the call too: only the call reports that the
    /// sandbox has ended or stopped.
    async fn read(&mut self) -> Result<usize, Status> {
        let Self { messages, leg, buffer, early, .. } = self;
        if buffer.capacity() < LEAST_BYTES {
            buffer.reserve(READ_BYTES);
        }
        let mut next = pin!(messages.message());
        poll_fn(|cx| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *leg), cx, buffer) {
                return Poll::Ready(read.map_err(|error| Status::from_error(Box::new(error))));
            }
            if early.is_none()
                && let Poll::Ready(message) = next.as_mut().poll(cx)
            {
                match message {
                    Ok(message) => *early = Some(message),
                    Err(status) => return Poll::Ready(Err(status)),
                }
            }
            Poll::Pending
        })
        .await
    }
}
