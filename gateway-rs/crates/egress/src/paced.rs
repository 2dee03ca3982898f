//! A connection whose reader lets other tasks run after a number of bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use program::transport::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one turn. HTTP/2 takes 10 for the smallest frame with data, so that one turn brings 6,600 of them at most.
const TURN_BYTES: usize = 64 << 10;

/// See the module. What has come in a turn is taken by its streams' tasks before the next turn, and not kept by the
/// HTTP/2 library, which ends the connection at a number of small frames that wait.
#[derive(Debug)]
pub(crate) struct Paced {
    stream: Stream,
    turn_bytes: usize,
}

impl Paced {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, turn_bytes: 0 }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.turn_bytes = if read.is_ready() { self.turn_bytes + buf.filled().len() - before } else { 0 };
        read
    }
}

impl AsyncWrite for Paced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
