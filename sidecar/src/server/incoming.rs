//! The data of an upload: messages of its call, and bytes of its leg.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tonic::{Status, Streaming};
use wire::agent::{WriteArchiveRequest, WriteFileRequest};

use crate::files::frames::DATA_BYTES;
use crate::leg::{Awaited, Leg};

/// A leg is answered before a message names it.
const LEG_PATIENCE: Duration = Duration::from_secs(5);

/// A message of an upload after its first.
pub(super) trait Part: Send + 'static {
    /// Its data, whether they are the last, and whether those that follow come over the leg.
    fn split(self) -> (Bytes, bool, bool);
}

impl Part for WriteFileRequest {
    fn split(self) -> (Bytes, bool, bool) {
        (self.data, self.eof, self.moved)
    }
}

impl Part for WriteArchiveRequest {
    fn split(self) -> (Bytes, bool, bool) {
        (self.data, self.eof, self.moved)
    }
}

/// What comes after an upload's first message. Only a message can say that it was the last one: to tonic the call of a
/// client that has gone is a stream at its end, as is its leg, and half a file would take the old one's place.
pub(super) struct Incoming<T> {
    messages: Streaming<T>,
    ended: bool,
    awaited: Option<Awaited>,
    leg: Option<Leg>,
    buffer: BytesMut,
}

impl<T: Part> Incoming<T> {
    pub(super) fn new(messages: Streaming<T>, ended: bool, awaited: Option<Awaited>) -> Self {
        Self { messages, ended, awaited, leg: None, buffer: BytesMut::new() }
    }

    /// The next data; `None` after the last. Nothing comes after an error.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        if self.ended {
            return None;
        }
        let came = self.come().await;
        self.ended |= came.is_err();
        Some(came)
    }

    async fn come(&mut self) -> Result<Bytes, Status> {
        if let Some(leg) = &mut self.leg {
            self.buffer.reserve(DATA_BYTES);
            if leg.read_buf(&mut self.buffer).await? > 0 {
                return Ok(self.buffer.split().freeze());
            }
            self.leg = None;
        }
        let cut = || Status::cancelled("the data broke off before their end");
        let (data, eof, moved) = self.messages.message().await?.ok_or_else(cut)?.split();
        if moved {
            let awaited = self.awaited.take().ok_or_else(cut)?;
            self.leg = Some(awaited.come(LEG_PATIENCE).await.ok_or_else(cut)?);
        }
        self.ended = eof;
        Ok(data)
    }
}
