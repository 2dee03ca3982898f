//! A byte stream with a filter: some operations are changed, and all others pass.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What changes a stream. Each operation passes by itself.
pub trait Filter {
    /// As of [`AsyncRead`].
    fn poll_read<S: AsyncRead>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        stream.poll_read(cx, buf)
    }

    /// As of [`AsyncWrite`], of one piece too.
    fn poll_write<S: AsyncWrite>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        stream.poll_write_vectored(cx, pieces)
    }

    /// As of [`AsyncWrite`]; a shutdown begins with it.
    fn poll_flush<S: AsyncWrite>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        stream.poll_flush(cx)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Filtered<S, F> {
    stream: S,
    filter: F,
}

impl<S, F> Filtered<S, F> {
    /// `stream` behind `filter`.
    pub fn by(filter: F, stream: S) -> Self {
        Self { stream, filter }
    }
}

impl<S: AsyncRead + Unpin, F: Filter + Unpin> AsyncRead for Filtered<S, F> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.filter.poll_read(Pin::new(&mut this.stream), cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, F: Filter + Unpin> AsyncWrite for Filtered<S, F> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.filter.poll_write(Pin::new(&mut this.stream), cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.filter.poll_flush(Pin::new(&mut this.stream), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
