//! One connection of a program: a stream of the link, as a byte stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Largest piece that is written at once.
const PIECE_BYTES: usize = 64 << 10;

/// Both directions of a stream. Dropped before its end it is reset, so that a program never takes a part for the whole.
#[derive(Debug)]
pub(crate) struct Carried {
    incoming: RecvStream,
    outgoing: SendStream<Bytes>,
    /// What has come and was not read yet.
    unread: Bytes,
}

impl Carried {
    pub(crate) fn new(incoming: RecvStream, outgoing: SendStream<Bytes>) -> Self {
        Self { incoming, outgoing, unread: Bytes::new() }
    }

    /// Gives room in the link's windows back, for what was read.
    fn release(&mut self, bytes: usize) -> io::Result<()> {
        self.incoming.flow_control().release_capacity(bytes).map_err(broken)
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            // Room that was given and not used is told by no wake-up.
            let room = self.outgoing.capacity();
            if room > 0 {
                return Poll::Ready(Ok(room.min(wanted)));
            }
            self.outgoing.reserve_capacity(wanted);
            match ready!(self.outgoing.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(e)) => return Poll::Ready(Err(broken(e))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }
}

fn broken(error: h2::Error) -> io::Error {
    match error.reason() {
        Some(Reason::CANCEL | Reason::NO_ERROR | Reason::STREAM_CLOSED) => {
            io::ErrorKind::ConnectionReset.into()
        }
        _ if error.is_io() => error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()),
        _ => io::Error::other(error),
    }
}

impl AsyncRead for Carried {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(self.incoming.poll_data(cx)) {
                Some(Ok(data)) => self.unread = data,
                Some(Err(e)) => return Poll::Ready(Err(broken(e))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(self.release(count))
    }
}

impl AsyncWrite for Carried {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let count = ready!(self.poll_room(buf.len().min(PIECE_BYTES), cx))?;
        let sent = self.outgoing.send_data(Bytes::copy_from_slice(&buf[..count]), false);
        Poll::Ready(sent.map(|()| count).map_err(broken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.outgoing.send_data(Bytes::new(), true).map_err(broken))
    }
}
