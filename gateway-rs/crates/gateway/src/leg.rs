use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{io, mem};

use resolve::Route;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use uuid::Uuid;

use program::transport::{Dialer, Stream};

/// First bytes of a leg, before its ticket; also the sidecar's answer on a leg that brings data
/// (`contract/agent.proto`).
const MARK: [u8; 4] = *b"LEG ";

/// How much has to go as messages before a leg is worth its connection, which costs a sandbox as much as some messages
/// do.
const WORTH_BYTES: usize = 1 << 20;

type Dialling = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

/// A further connection to the sidecar for the data of one port or one file, once that is much: bare bytes cost a
/// sandbox under gVisor less than half of what messages cost. What arrives over it counts only after the call has said
/// so (`moved`): the call has shown its token, and only its sidecar knows the ticket.
pub(crate) struct Leg {
    ticket: Uuid,
    way: Way,
    state: State,
}

/// The direction of the data on a leg.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the client.
    Out,
    /// Into the sandbox. The sidecar confirms that it accepts them.
    In,
}

enum State {
    /// `bytes` more have to go as messages before the leg is dialled.
    Waiting {
        bytes: usize,
        dialler: Arc<Dialer>,
        route: Arc<Route>,
    },
    Dialling(Dialling),
    Open(Stream),
    /// There is no connection: all data go as messages.
    Failed(io::Error),
}

/// TCP keep-alive. A side that only reads, or waits for what it wrote to be received, would otherwise never notice
/// that the sandbox has gone: the call may have reported its end already.
fn probes() -> TcpKeepalive {
    let every = Duration::from_secs(5);
    TcpKeepalive::new().with_time(every).with_interval(every).with_retries(2)
}

impl Leg {
    pub(crate) fn new(way: Way, dialler: Arc<Dialer>, route: Arc<Route>) -> Self {
        let state = State::Waiting { bytes: WORTH_BYTES, dialler, route };
        Self { ticket: Uuid::new_v4(), way, state }
    }

    /// The ticket that the call has to name.
    pub(crate) fn ticket(&self) -> Vec<u8> {
        self.ticket.as_bytes().to_vec()
    }

    /// Counts data that went as messages; dials the leg when it is worth its connection.
    pub(crate) fn count(&mut self, went: usize) {
        let way = self.way;
        if let State::Waiting { bytes, dialler, route } = &mut self.state {
            *bytes = bytes.saturating_sub(went);
            if *bytes == 0 {
                let (dialler, route) = (Arc::clone(dialler), Arc::clone(route));
                let shown = [&MARK[..], self.ticket.as_bytes()].concat();
                self.state = State::Dialling(Box::pin(async move {
                    let mut stream = dialler.connect(&route.address).await?;
                    if let Stream::Tcp(socket) = &stream {
                        SockRef::from(socket).set_tcp_keepalive(&probes())?;
                    }
                    stream.write_all(&shown).await?;
                    let mut answered = [0; MARK.len()];
                    if way == Way::In && (stream.read_exact(&mut answered).await.map(|_| answered)? != MARK) {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    Ok(stream)
                }));
            }
        }
    }

    /// Makes progress with dialling. Wakes the task as a read does.
    pub(crate) fn poll_dial(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Dialling(dialling) = &mut self.state {
            self.state = match ready!(dialling.as_mut().poll(cx)) {
                Ok(stream) => State::Open(stream),
                Err(error) => State::Failed(error),
            };
        }
        Poll::Ready(())
    }

    /// Returns the connection if it is open; the caller owns it from then on. Makes progress with dialling, but does
    /// not wait.
    pub(crate) async fn opened(&mut self) -> Option<Stream> {
        poll_fn(|cx| Poll::Ready(self.poll_dial(cx).is_ready())).await;
        match mem::replace(&mut self.state, State::Failed(io::ErrorKind::NotConnected.into())) {
            State::Open(stream) => Some(stream),
            other => {
                self.state = other;
                None
            }
        }
    }
}

/// To be read only once the call has moved its data to the leg.
impl AsyncRead for Leg {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_dial(cx));
        match &mut self.state {
            State::Open(stream) => Pin::new(stream).poll_read(cx, buf),
            State::Failed(error) => Poll::Ready(Err(error.kind().into())),
            State::Waiting { .. } | State::Dialling(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
    }
}
