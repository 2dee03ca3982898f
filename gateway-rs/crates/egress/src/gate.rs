//! The program's side of a tunnel, whose first bytes are looked at before a server gets them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::client_hello::{self, ClientHello};
use crate::policy::{Host, Refusal, Tls};
use crate::sandbox::Passage;

/// Timeout for the first message of TLS where it has to come.
const DEADLINE: Duration = Duration::from_secs(10);

const READ_BYTES: usize = 4096;

/// A fatal alert of TLS, `access_denied` (RFC 8446 section 6): what a TLS library understands of a refusal.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// A byte stream of a program that gives nothing to its reader until its TLS is decided on.
pub(crate) struct Gate<S> {
    stream: S,
    passage: Arc<Passage>,
    state: State,
    /// Read already, and to be read by the reader first.
    held: BytesMut,
}

enum State {
    Open,
    Closed { tls: Tls, deadline: Option<Pin<Box<Sleep>>> },
    Refused,
}

impl<S> Gate<S> {
    /// `held`: what was read of the stream already.
    pub(crate) fn new(stream: S, held: BytesMut, passage: Arc<Passage>) -> Self {
        let state = match passage.tls() {
            Tls::Free => State::Open,
            tls @ Tls::Checked => State::Closed { tls, deadline: None },
            tls @ Tls::Required => {
                State::Closed { tls, deadline: Some(Box::pin(tokio::time::sleep(DEADLINE))) }
            }
        };
        Self { stream, passage, state, held }
    }

    /// What a program that was refused is sent, if anything; and its stream.
    pub(crate) fn refused(self) -> (S, Option<&'static [u8]>) {
        (self.stream, matches!(self.state, State::Refused).then_some(&ALERT))
    }

    /// Decides, if enough has come; `eof`: nothing more will.
    fn decide(&mut self, tls: Tls, eof: bool) -> Result<bool, Refusal> {
        if tls == Tls::Checked && !self.held.first().is_some_and(|first| client_hello::may_begin_with(*first))
        {
            return Ok(eof || !self.held.is_empty());
        }
        match client_hello::read(&self.held) {
            Ok(Some(hello)) => self.decide_hello(&hello).map(|()| true),
            Ok(None) if !eof => Ok(false),
            // A program that closes without a byte has asked for nothing.
            Ok(None) if self.held.is_empty() => Ok(true),
            Ok(None) | Err(_) => Err(self.passage.refused_tls("this does not begin a TLS connection")),
        }
    }

    fn decide_hello(&self, hello: &ClientHello) -> Result<(), Refusal> {
        if hello.encrypted {
            return Err(self
                .passage
                .refused_tls("its TLS server name is encrypted, and rules are for names"));
        }
        match hello.server_name.as_deref().map(Host::parse).transpose() {
            Ok(name) => self.passage.named(name.as_ref()),
            Err(e) => Err(self.passage.refused_tls(&format!("its TLS server name: {e}"))),
        }
    }
}

impl<S: AsyncRead + Unpin> Gate<S> {
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        loop {
            let State::Closed { tls, deadline } = &mut self.state else { return Poll::Ready(Ok(())) };
            let tls = *tls;
            if deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Err(self.passage.refused_tls("no TLS connection was begun in time")));
            }
            if self.decide(tls, false)? {
                self.state = State::Open;
                return Poll::Ready(Ok(()));
            }
            let mut space = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut space);
            let ended = match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)) {
                Ok(()) => read.filled().is_empty(),
                // The error comes again to the reader.
                Err(_) => true,
            };
            self.held.extend_from_slice(read.filled());
            if ended {
                self.decide(tls, true)?;
                self.state = State::Open;
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Err(refusal) = ready!(self.poll_open(cx)) {
            self.passage.ends(&refusal);
            self.state = State::Refused;
            return Poll::Ready(Err(io::ErrorKind::PermissionDenied.into()));
        }
        if self.held.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.held.len().min(buf.remaining());
        buf.put_slice(&self.held[..count]);
        self.held.advance(count);
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
