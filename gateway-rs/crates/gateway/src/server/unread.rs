//! Says why to a client whose request hyper cannot read. hyper answers such a request itself, without a body, and closes
//! the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use program::filtered::{Filter, Filtered};
use tokio::io::AsyncWrite;
use wire::{Code, Problem};

use crate::http::{error, request_id};

/// Every byte of the answers so far was written: what follows is hyper's own, or the answer to a further request.
const IDLE: u8 = 0;
/// A request was read, and the end of its answer is still to come.
const ANSWERING: u8 = 1;
/// The end of an answer has come, and may wait to be written.
const ENDED: u8 = 2;

/// How far a connection has come with its requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn(Arc<AtomicU8>);

/// To be kept with the body of an answer.
#[derive(Debug)]
pub(super) struct Answer(Turn);

impl Turn {
    /// A request was read. Nothing is explained any more until the answer is dropped, nor ever on a connection that
    /// changes its protocol.
    pub(super) fn begin(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    /// What tells the end of the answer.
    pub(super) fn answer(&self) -> Answer {
        Answer(self.clone())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.0.store(ENDED, Ordering::Relaxed);
    }
}

/// The stream of a client.
pub(super) type Explained<S> = Filtered<S, Explaining>;

/// Puts an explanation in the place of a refusal of hyper. hyper flushes an answer before it reads a further request, so
/// no bytes of a sandbox's server are taken for a refusal.
#[derive(Debug)]
pub(super) struct Explaining {
    turn: Turn,
    explanation: Bytes,
}

/// See [`Explaining`].
pub(super) fn explained<S>(stream: S, turn: Turn) -> Explained<S> {
    Filtered::by(Explaining { turn, explanation: Bytes::new() }, stream)
}

impl Explaining {
    fn poll_explanation<S: AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.explanation.is_empty() {
            let count = ready!(stream.as_mut().poll_write(cx, &self.explanation))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.explanation.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl Filter for Explaining {
    fn poll_write<S: AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_explanation(stream.as_mut(), cx))?;
        if self.turn.0.load(Ordering::Relaxed) == IDLE
            && let [refusal] = pieces
            && let Some(explanation) = explanation(refusal)
        {
            self.explanation = explanation;
            return Poll::Ready(Ok(refusal.len()));
        }
        stream.poll_write_vectored(cx, pieces)
    }

    fn poll_flush<S: AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_explanation(stream.as_mut(), cx))?;
        ready!(stream.poll_flush(cx))?;
        let _ = self.turn.0.compare_exchange(ENDED, IDLE, Ordering::Relaxed, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

/// The whole response in place of a refusal of hyper, which is its head alone; `None` for anything else.
fn explanation(refusal: &[u8]) -> Option<Bytes> {
    let status = refusal.strip_prefix(b"HTTP/1.1 ")?.get(..4)?;
    let problem = match status {
        b"400 " => Problem::new(
            Code::InvalidArgument,
            "this is no valid HTTP/1.1 request: in its target, spaces, control characters, <, > and (in the query) \" \
             have to be percent-encoded, each header is a name, a colon and a value, and a body has one valid length \
             or comes in chunks",
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
