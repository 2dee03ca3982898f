//! One connection of a program: a stream of the link, as a byte stream.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::{FlowControl, Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::Gathered;

/// Largest piece that is written at once.
const PIECE_BYTES: usize = 256 << 10;

/// How long a program may take to read what it was sent last, and to end its side.
const LINGER: Duration = Duration::from_secs(60);

/// Both directions of a stream. Dropped before its end it is reset, so that a program never takes a part for the whole.
#[derive(Debug)]
pub(crate) struct Carried {
    come: Arc<Mutex<Come>>,
    /// Opens the link's windows.
    window: FlowControl,
    outgoing: SendStream<Bytes>,
}

/// What has come of a stream.
#[derive(Debug, Default)]
struct Come {
    unread: Gathered,
    /// Why nothing more comes: its end, or a failure that is told once.
    end: Option<io::Result<()>>,
    reader: Option<Waker>,
    /// This side has ended.
    answered: bool,
}

/// Takes what comes from the library, whether it is read or not: the library ends the whole link at a number of small
/// pieces that wait in it. The windows bound what waits here, as they open only for what was read.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: RecvStream,
    come: Arc<Mutex<Come>>,
}

impl Incoming {
    /// Runs `served`, the owner of the [`Carried`], to its end, and takes what comes meanwhile. If it has ended its side
    /// and the program has not, waits for that, for a minute at most: a reset now would overtake the last data on their
    /// way through the relay.
    pub(crate) async fn during(mut self, served: impl Future<Output = ()>) {
        tokio::select! {
            // So what has come is there when its reader is polled.
            biased;
            never = self.take() => match never {},
            () = served => {}
        }
        let (answered, ended) = self.with(|come| (come.answered, come.end.is_some()));
        if answered && !ended {
            drop(tokio::time::timeout(LINGER, self.discard()).await);
        }
    }

    async fn take(&mut self) -> Infallible {
        while let Some(piece) = self.stream.data().await {
            match piece {
                Ok(piece) => self.with(|come| come.unread.push(piece)),
                Err(error) => return self.ended(Err(broken(error))).await,
            }
            self.wake().await;
        }
        self.ended(Ok(())).await
    }

    async fn ended(&self, end: io::Result<()>) -> Infallible {
        self.with(|come| come.end = Some(end));
        self.wake().await;
        std::future::pending().await
    }

    /// A reader of this task is polled after this anyway.
    async fn wake(&self) {
        let Some(reader) = self.with(|come| come.reader.take()) else { return };
        let same = poll_fn(|cx| Poll::Ready(reader.will_wake(cx.waker()))).await;
        if !same {
            reader.wake();
        }
    }

    async fn discard(&mut self) {
        let unread = self.with(|come| std::mem::take(&mut come.unread).remaining());
        drop(self.stream.flow_control().release_capacity(unread));
        while let Some(Ok(piece)) = self.stream.data().await {
            // A failure ends the loop, with the next piece.
            drop(self.stream.flow_control().release_capacity(piece.len()));
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Come) -> T) -> T {
        look(&mut self.come.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Carried {
    pub(crate) fn new(mut stream: RecvStream, outgoing: SendStream<Bytes>) -> (Self, Incoming) {
        let come = Arc::<Mutex<Come>>::default();
        let window = stream.flow_control().clone();
        (Self { come: Arc::clone(&come), window, outgoing }, Incoming { stream, come })
    }

    fn come(&self) -> MutexGuard<'_, Come> {
        self.come.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut come = self.come();
        if !come.unread.has_remaining() {
            return match &mut come.end {
                Some(end) => Poll::Ready(std::mem::replace(end, Ok(()))),
                None => {
                    come.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        }
        let before = buf.remaining();
        while come.unread.has_remaining() && buf.remaining() > 0 {
            let count = come.unread.chunk().len().min(buf.remaining());
            buf.put_slice(&come.unread.chunk()[..count]);
            come.unread.advance(count);
        }
        drop(come);
        let read = before - buf.remaining();
        Poll::Ready(self.window.release_capacity(read).map_err(broken))
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
        let sent = self.outgoing.send_data(piece.freeze(), false);
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
        self.outgoing.send_data(Bytes::new(), true).map_err(broken)?;
        self.come().answered = true;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use program::transport::Stream;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;
    use tokio::sync::oneshot;

    use super::*;
    use crate::link::{FRAME_BUDGET, STREAM_BYTES, protocol};
    use crate::paced::paced;

    /// More small pieces than the library lets wait in it.
    const PIECES: usize = 2 * FRAME_BUDGET / 256;
    const _: () = assert!(PIECES <= STREAM_BYTES as usize);

    /// Completes when so many bytes wait for the reader.
    async fn waiting(carried: &Carried, bytes: usize) {
        while carried.come().unread.remaining() < bytes {
            assert!(carried.come().end.is_none(), "the link has ended");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn small_pieces_before_a_reader_that_stands_still_end_no_link() {
        let (ours, relay) = UnixStream::pair().unwrap();
        let (link, programs) = tokio::join!(
            protocol().handshake::<_, Bytes>(paced(Stream::Unix(ours))),
            h2::client::handshake(relay)
        );
        let (mut link, (mut programs, relay)) = (link.unwrap(), programs.unwrap());
        let relay = tokio::spawn(relay);
        let (mut sent, mut carried) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            sent.push(
                programs.send_request(Request::connect("egress:1").body(()).unwrap(), false).unwrap().1,
            );
            let (request, mut respond) = link.accept().await.unwrap().unwrap();
            let outgoing = respond.send_response(Response::new(()), false).unwrap();
            carried.push(Carried::new(request.into_body(), outgoing));
        }
        let link = tokio::spawn(async move { while link.accept().await.is_some() {} });
        let [mut chatty, mut other] = sent.try_into().unwrap();
        let [(mut slow, slow_incoming), (mut quick, quick_incoming)] = carried.try_into().unwrap();
        for _ in 0..PIECES {
            chatty.send_data(Bytes::from_static(b"x"), false).unwrap();
        }
        let (go, gone) = oneshot::channel();
        let slow = slow_incoming.during(async {
            waiting(&slow, PIECES).await;
            go.send(()).unwrap();
            slow.read_exact(&mut vec![0; PIECES]).await.unwrap();
        });
        let quick = quick_incoming.during(async {
            gone.await.unwrap();
            other.send_data(Bytes::from_static(b"ping"), true).unwrap();
            let mut all = String::new();
            quick.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, "ping");
        });
        tokio::join!(slow, quick);
        relay.abort();
        link.abort();
    }
}
