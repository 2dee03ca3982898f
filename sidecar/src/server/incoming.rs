//! The data of an upload: messages of its call, and bytes from its leg.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tonic::{Status, Streaming};
use wire::agent::{WriteArchiveRequest, WriteFileRequest};

use crate::files::frames::DATA_BYTES;
use crate::leg::{Awaited, Leg};

/// The sidecar answers a leg before a message refers to it, so this wait is short.
const LEG_PATIENCE: Duration = Duration::from_secs(5);

/// The content of an upload's messages after the first.
pub(super) struct Piece {
    data: Bytes,
    eof: bool,
    moved: bool,
    moved_bytes: u64,
}

impl From<WriteFileRequest> for Piece {
    fn from(WriteFileRequest { data, eof, moved, moved_bytes, .. }: WriteFileRequest) -> Self {
        Self { data, eof, moved, moved_bytes }
    }
}

impl From<WriteArchiveRequest> for Piece {
    fn from(WriteArchiveRequest { data, eof, moved, moved_bytes, .. }: WriteArchiveRequest) -> Self {
        Self { data, eof, moved, moved_bytes }
    }
}

/// The data that follow an upload's first message. Only a message with `eof` marks the end: to tonic the call of a
/// client that has gone is a stream at its end, and a partial file would replace the old one. That message also says
/// how many bytes went over the leg, because a proxy in between may close a leg that was cut as if it had ended.
pub(super) struct Incoming<T> {
    messages: Streaming<T>,
    ended: bool,
    awaited: Option<Awaited>,
    leg: Option<Leg>,
    moved_bytes: u64,
    buffer: BytesMut,
}

impl<T: Into<Piece>> Incoming<T> {
    pub(super) fn new(messages: Streaming<T>, ended: bool, awaited: Option<Awaited>) -> Self {
        Self { messages, ended, awaited, leg: None, moved_bytes: 0, buffer: BytesMut::new() }
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
            let count = leg.read_buf(&mut self.buffer).await?;
            if count > 0 {
                self.moved_bytes += u64::try_from(count).unwrap_or(0);
                return Ok(self.buffer.split().freeze());
            }
            self.leg = None;
        }
        let cut = || Status::cancelled("the upload broke off before its end");
        let Piece { data, eof, moved, moved_bytes } = self.messages.message().await?.ok_or_else(cut)?.into();
        if eof && (moved || moved_bytes != self.moved_bytes) {
            return Err(cut());
        }
        if moved {
            let awaited = self.awaited.take().ok_or_else(cut)?;
            self.leg = Some(awaited.come(LEG_PATIENCE).await.ok_or_else(cut)?);
        }
        self.ended = eof;
        Ok(data)
    }
}
