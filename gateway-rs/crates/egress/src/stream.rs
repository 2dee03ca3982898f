//! One connection of a program: a stream of the link, as a byte stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Largest piece that is written at once.
const PIECE_BYTES: usize = 256 << 10;

/// How long a program may take to read what it was sent last, and to end its side.
const LINGER: Duration = Duration::from_secs(60);

/// Both directions of a stream. Dropped before its end it is reset, so that a program never takes a part for the whole.
///
/// Dropped once this side has ended and the program has not, what is left of it goes to [`Rest`]: a reset now would
/// overtake the last data on their way through the relay.
#[derive(Debug)]
pub(crate) struct Carried {
    /// `None` once it was dropped.
    halves: Option<Halves>,
    /// What has come and was not read yet.
    unread: Bytes,
    ended: bool,
    rest: Option<oneshot::Sender<Halves>>,
}

#[derive(Debug)]
struct Halves {
    incoming: RecvStream,
    outgoing: SendStream<Bytes>,
}

/// What is left of a stream whose owner has ended it.
#[derive(Debug)]
pub(crate) struct Rest(oneshot::Receiver<Halves>);

impl Rest {
    /// Waits until the program has ended its side too, for a minute at most. Completes at once for a stream that was
    /// reset, or that the program has ended.
    pub(crate) async fn end(self) {
        let Ok(mut halves) = self.0.await else { return };
        let ended = async {
            while let Some(Ok(data)) = halves.incoming.data().await {
                // A failure ends the loop, with the next piece.
                drop(halves.incoming.flow_control().release_capacity(data.len()));
            }
        };
        drop(tokio::time::timeout(LINGER, ended).await);
    }
}

impl Carried {
    pub(crate) fn new(incoming: RecvStream, outgoing: SendStream<Bytes>) -> (Self, Rest) {
        let (rest, coming) = oneshot::channel();
        let halves = Some(Halves { incoming, outgoing });
        (Self { halves, unread: Bytes::new(), ended: false, rest: Some(rest) }, Rest(coming))
    }

    fn halves(&mut self) -> io::Result<&mut Halves> {
        self.halves.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Gives room in the link's windows back, for what was read.
    fn release(&mut self, bytes: usize) -> io::Result<()> {
        self.halves()?.incoming.flow_control().release_capacity(bytes).map_err(broken)
    }

    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let outgoing = &mut self.halves()?.outgoing;
        loop {
            // Room that was given and not used is told by no wake-up.
            let room = outgoing.capacity();
            if room > 0 {
                return Poll::Ready(Ok(room.min(wanted)));
            }
            outgoing.reserve_capacity(wanted);
            match ready!(outgoing.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(e)) => return Poll::Ready(Err(broken(e))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let halves = self.halves.take().filter(|halves| self.ended && !halves.incoming.is_end_stream());
        if let (Some(halves), Some(rest)) = (halves, self.rest.take()) {
            // Nobody waits where the task was aborted.
            drop(rest.send(halves));
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
            match ready!(self.halves()?.incoming.poll_data(cx)) {
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
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    /// A copy of its own, since what is sent outlives the call.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = bufs.iter().map(|buf| buf.len()).sum();
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        let count = ready!(self.poll_room(PIECE_BYTES.min(wanted), cx))?;
        let mut piece = BytesMut::with_capacity(count);
        for buf in bufs {
            piece.extend_from_slice(&buf[..buf.len().min(count - piece.len())]);
        }
        let sent = self.halves()?.outgoing.send_data(piece.freeze(), false);
        Poll::Ready(sent.map(|()| count).map_err(broken))
    }

    /// So that an HTTP library does not copy what it writes into one buffer before.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.halves()?.outgoing.send_data(Bytes::new(), true).map_err(broken)?;
        self.ended = true;
        Poll::Ready(Ok(()))
    }
}
