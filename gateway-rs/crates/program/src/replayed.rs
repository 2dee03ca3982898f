//! A byte stream from which some bytes were read already; they are read again first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, ReadBuf};

use crate::filtered::{Filter, Filtered};

/// See the module.
pub type Replayed<S> = Filtered<S, Again>;

/// What is read again.
#[derive(Debug)]
pub struct Again(Bytes);

impl<S> Replayed<S> {
    /// `first_bytes` are what was read of `stream`.
    pub fn new(first_bytes: Bytes, stream: S) -> Self {
        Self::by(Again(first_bytes), stream)
    }
}

impl Filter for Again {
    fn poll_read<S: AsyncRead>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return stream.poll_read(cx, buf);
        }
        let count = self.0.len().min(buf.remaining());
        buf.put_slice(&self.0[..count]);
        self.0.advance(count);
        Poll::Ready(Ok(()))
    }
}
