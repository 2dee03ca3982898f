use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::Stream as _;
use resolve::Route;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::{DropGuard, PollSender};
use tonic::{Status, Streaming};
use wire::Problem;
use wire::agent::PortFrame;

use crate::auth::Bearer;
use crate::call::{self, Calls};
use crate::leg::Leg;

/// Frames that may wait on their way to the sidecar; the sender of a further one waits.
const QUEUE: usize = 2;

/// Largest piece of data in one frame.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// An open connection to a port of a sandbox, as frames in both directions. Dropping it aborts the connection.
pub(super) struct Frames {
    pub(super) up: mpsc::Sender<PortFrame>,
    pub(super) down: Streaming<PortFrame>,
    pub(super) guard: DropGuard,
}

/// Connects to the port that the first frame names.
///
/// # Errors
/// `port_unreachable` where nothing listens, or the reason why the sandbox cannot be called.
pub(super) async fn open(
    calls: &Calls,
    bearer: &Bearer,
    route: &Arc<Route>,
    first: PortFrame,
) -> Result<Frames, Problem> {
    let (up, frames) = mpsc::channel(QUEUE);
    // Never full: it is the first.
    drop(up.try_send(first));
    let messages = futures_util::stream::unfold(frames, async |mut frames: mpsc::Receiver<PortFrame>| {
        frames.recv().await.map(|frame| (frame, frames))
    });
    let (request, guard) = call::streamed(messages, &bearer.header, ());
    let mut agent = calls.agent(route);
    let mut down = calls.ask(route, agent.connect(request)).await?;
    calls.next(route, &mut down).await?;
    Ok(Frames { up, down, guard })
}

/// The same connection as a byte stream.
pub(super) struct Connection {
    /// The first field, so dropped first: an aborted stream must not look like one that has ended.
    _guard: DropGuard,
    up: PollSender<PortFrame>,
    down: Streaming<PortFrame>,
    /// The unread rest of the latest frame.
    rest: Bytes,
    ended: bool,
    /// The leg that replaces the frames once there are many, and whether it has.
    leg: Leg,
    moved: bool,
}

/// The gRPC status behind a connection's error, however deep it is wrapped.
pub(super) fn status_of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Status> {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(status) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(status);
        }
        next = error.source();
    }
    None
}

impl Connection {
    pub(super) fn new(frames: Frames, leg: Leg) -> Self {
        let Frames { up, down, guard } = frames;
        let (up, rest) = (PollSender::new(up), Bytes::new());
        Self { _guard: guard, up, down, rest, ended: false, leg, moved: false }
    }

    /// Reads the next frame. Only a frame with `eof` ends the server's data: a call that is over without one was
    /// aborted.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Makes progress with the leg's connection; whichever is ready first wakes this task.
        let _ = self.leg.poll_dial(cx);
        match ready!(Pin::new(&mut self.down).poll_next(cx)) {
            Some(Ok(frame)) => {
                self.leg.count(frame.data.len());
                self.ended = frame.eof;
                self.moved |= frame.moved;
                self.rest = frame.data;
                Poll::Ready(Ok(()))
            }
            Some(Err(status)) => Poll::Ready(Err(io::Error::other(status))),
            None => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, frame: impl FnOnce() -> PortFrame) -> Poll<io::Result<()>> {
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.up.poll_reserve(cx)).map_err(broken)?;
        Poll::Ready(self.up.send_item(frame()).map_err(broken))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() && (self.moved || !self.ended) {
            if self.moved {
                let before = buf.filled().len();
                match Pin::new(&mut self.leg).poll_read(cx, buf)? {
                    Poll::Ready(()) if buf.filled().len() > before => return Poll::Ready(Ok(())),
                    // The call reports how the data ended.
                    Poll::Ready(()) => {
                        self.moved = false;
                        continue;
                    }
                    Poll::Pending if self.ended => return Poll::Pending,
                    // Only the call reports that the sandbox has gone.
                    Poll::Pending => {}
                }
            }
            ready!(self.poll_frame(cx))?;
        }
        let count = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let data = &buf[..buf.len().min(CHUNK_BYTES)];
        let frame = || PortFrame { data: Bytes::copy_from_slice(data), ..PortFrame::default() };
        self.poll_send(cx, frame).map_ok(|()| data.len())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.up.is_closed() {
            return Poll::Ready(Ok(()));
        }
        let sent = ready!(self.poll_send(cx, || PortFrame { eof: true, ..PortFrame::default() }));
        self.up.close();
        Poll::Ready(sent)
    }
}
