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

use crate::transport::{Dialer, Stream};

/// How a leg begins, before its ticket, and how one that brings data is answered (`contract/agent.proto`).
const MARK: [u8; 4] = *b"LEG ";

/// What comes before a leg is worth its connection, which costs a sandbox as much as some messages do.
const WORTH_BYTES: usize = 1 << 20;

type Dialling = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

/// A further connection to the sidecar for what one port says or one file holds or gets, once that is much: bare bytes
/// cost a sandbox under gVisor less than half of what messages do. Nothing that comes over it counts before the call has
/// said that it does (`moved`): the call has shown its token, and only its sidecar knows the ticket.
pub(crate) struct Leg {
    ticket: Uuid,
    way: Way,
    state: State,
}

/// Where data on a leg go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the client.
    Out,
    /// Into the sandbox. The sidecar says that it takes them: an older one knows no such legs.
    In,
}

enum State {
    /// So many bytes are still to come before it is worth it.
    Waiting {
        bytes: usize,
        dialler: Arc<Dialer>,
        route: Arc<Route>,
    },
    Dialling(Dialling),
    Open(Stream),
    /// It was not to be had: all comes as messages.
    Failed(io::Error),
}

/// Who only listens there, or waits for what was written to be taken, would else never notice a sandbox that is gone: the
/// call may have told its end already.
fn probes() -> TcpKeepalive {
    let every = Duration::from_secs(5);
    TcpKeepalive::new().with_time(every).with_interval(every).with_retries(2)
}

impl Leg {
    pub(crate) fn new(way: Way, dialler: Arc<Dialer>, route: Arc<Route>) -> Self {
        let state = State::Waiting { bytes: WORTH_BYTES, dialler, route };
        Self { ticket: Uuid::new_v4(), way, state }
    }

    /// What the call has to name.
    pub(crate) fn ticket(&self) -> Vec<u8> {
        self.ticket.as_bytes().to_vec()
    }

    /// Counts what went as messages.
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

    /// Goes on with what is under way. Wakes like a read.
    pub(crate) fn poll_dial(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Dialling(dialling) = &mut self.state {
            self.state = match ready!(dialling.as_mut().poll(cx)) {
                Ok(stream) => State::Open(stream),
                Err(error) => State::Failed(error),
            };
        }
        Poll::Ready(())
    }

    /// The connection, if it is there; it is the caller's then. Goes on with what is under way.
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

/// Read it only once the call has moved there.
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
