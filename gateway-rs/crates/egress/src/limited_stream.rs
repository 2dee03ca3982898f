//! The server's side of a connection: counted, limited, and broken as soon as the policy does not allow it any more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::policy::Refusal;
use crate::sandbox::Passage;

/// A connection to a server, for as long as its passage holds. The socket is dropped before the passage: whoever waits
/// for the passage's end knows that it is closed.
pub(crate) struct LimitedStream<S> {
    stream: S,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// No data is moved before; nearly always in the past.
    pause: Option<Pin<Box<Sleep>>>,
    passage: Arc<Passage>,
}

impl<S> LimitedStream<S> {
    pub(crate) fn new(stream: S, passage: Arc<Passage>) -> Self {
        Self { stream, cut: Box::pin(passage.cut()), pause: None, passage }
    }

    /// Completes when data may be moved.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(Ok(()))
    }

    fn count(&mut self, counted: Result<Duration, Refusal>) -> io::Result<()> {
        let wait = counted.map_err(|refusal| {
            self.passage.ends(&refusal);
            io::Error::from(io::ErrorKind::QuotaExceeded)
        })?;
        if !wait.is_zero() {
            self.pause = Some(Box::pin(tokio::time::sleep_until(Instant::now() + wait)));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_allowed(cx))?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let counted = self.passage.received(buf.filled().len() - before);
        Poll::Ready(self.count(counted))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_allowed(cx))?;
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        let counted = self.passage.sent(count);
        Poll::Ready(self.count(counted).map(|()| count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
