//! Says why to a client whose request hyper cannot read. hyper answers such a request itself, without a body, and closes
//! the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::{Code, Problem};

use crate::http::{error, request_id};

/// Whether something was read since the latest request that could be.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// A request was read.
    pub(super) fn is_read(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The stream of a client. It keeps what looks like hyper's refusal until the next write, which shows that it was none,
/// or the shutdown, which always follows on a refusal: a body of a sandbox's server with the same bytes stays as it is.
#[derive(Debug)]
pub(super) struct Explaining<S> {
    stream: S,
    unread: Unread,
    kept: Bytes,
    explained: bool,
}

impl<S> Explaining<S> {
    pub(super) fn new(stream: S, unread: Unread) -> Self {
        Self { stream, unread, kept: Bytes::new(), explained: false }
    }

    fn keeps(&mut self, bytes: &[u8]) -> bool {
        let refusal = self.unread.0.load(Ordering::Relaxed) && explanation(bytes).is_some();
        if refusal {
            self.kept = Bytes::copy_from_slice(bytes);
        }
        refusal
    }
}

impl<S: AsyncWrite + Unpin> Explaining<S> {
    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.kept))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.kept.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Explaining<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.unread.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explaining<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_kept(cx))?;
        if self.keeps(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        ready!(self.poll_kept(cx))?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.explained, true)
            && let Some(explanation) = explanation(&self.kept)
        {
            self.kept = explanation;
        }
        ready!(self.poll_kept(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The whole response in place of a refusal of hyper, which is its head alone; `None` for anything else.
fn explanation(refusal: &[u8]) -> Option<Bytes> {
    let status = refusal.strip_prefix(b"HTTP/1.1 ")?.get(..4)?;
    let problem = match status {
        b"400 " => Problem::new(
            Code::InvalidArgument,
            "this is no valid HTTP/1.1 request: in its target, spaces, control characters, <, > and (in the query) \" \
             have to be percent-encoded, and each header is a name, a colon and a value",
        ),
        b"414 " | b"431 " => Problem::new(
            Code::PayloadTooLarge,
            "the head of the request is longer than 64 KiB, or has more than 100 headers",
        ),
        _ => return None,
    };
    let head = std::str::from_utf8(refusal).ok()?.strip_suffix("\r\n\r\n")?;
    // All other answers have a request id.
    let ours = head.contains("\r\ncontent-length: 0") && !head.contains(request_id::HEADER.as_str());
    (ours && !head.contains("\r\n\r\n")).then(|| rendered(&problem))
}

fn rendered(problem: &Problem) -> Bytes {
    let id = request_id::ensure(&mut HeaderMap::new());
    let id = id.to_str().unwrap_or_default();
    let body = problem.to_json(id, error::retry_after_ms(problem.code)).to_string();
    let (status, length) = (problem.code.http(), body.len());
    let reason =
        http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    Bytes::from(format!(
        "HTTP/1.1 {status} {reason}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {length}\r\n{}: {id}\r\n\r\n{body}",
        request_id::HEADER
    ))
}
