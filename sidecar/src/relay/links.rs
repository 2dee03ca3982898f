//! The links to egress: HTTP/2 connections on which the relay is the client, of which the latest takes new connections.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::{Method, Request};
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::refusal::Refusal;
use crate::sys;

/// Connections of programs at one time; as many as egress takes of one sandbox.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// What one connection may have received that its program did not read yet.
const STREAM_BYTES: u32 = 128 << 10;
/// The same while few are open: in a round trip, which takes milliseconds under gVisor, no more than this comes; and
/// what waits is read in larger pieces.
pub(super) const WIDE_STREAM_BYTES: u32 = 4 << 20;
const FEW: usize = 4;
/// All of them together: so no program that does not read blocks another one.
const LINK_BYTES: u32 = STREAM_BYTES * (MAX_CONNECTIONS - FEW) as u32 + WIDE_STREAM_BYTES * FEW as u32;
/// The library's bound of small frames that wait in it: none. Egress is the platform's, and what waits for a program does
/// so in `carry`, as bytes that the windows bound.
const FRAME_BUDGET: usize = usize::MAX;
/// How long a change of the window waits for egress to have taken in the one before.
const WINDOW_PAUSE: Duration = Duration::from_millis(10);
/// What of one connection may wait to be sent.
const SEND_BYTES: usize = 64 << 10;
const FRAME_BYTES: u32 = 256 << 10;
/// Bytes of one read: under gVisor most of the cost is per call.
pub(super) const READ_BYTES: usize = 1 << 20;
const HEADER_BYTES: u32 = 4 << 10;
/// Links that end with their last connection, while a newer one takes the new ones; an older one is cut.
const MAX_LINKS: usize = 4;
/// How long a connection waits for another link when there has been one.
const LINK_WAIT: Duration = Duration::from_secs(10);
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);
/// How long after the last connection the memory of what has passed is given back.
const REST: Duration = Duration::from_secs(1);
/// How often egress is pinged while connections are open, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(5);
const PONG_WAIT: Duration = Duration::from_secs(15);

/// Which loopback address the program has connected to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    /// 127.0.0.1
    V4,
    /// ::1
    V6,
}

/// A connection's stream on the link.
pub(super) struct Opened {
    /// The answer to come.
    pub(super) response: ResponseFuture,
    /// What is sent.
    pub(super) sent: SendStream<Bytes>,
    pub(super) counted: Counted,
}

/// Streams of a link that are open.
type Count = watch::Sender<usize>;

/// One of them, for as long as this lives.
#[derive(Debug)]
pub(super) struct Counted(Arc<Count>);

impl Counted {
    fn of(count: Arc<Count>) -> Self {
        count.send_modify(|open| *open += 1);
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

#[derive(Debug, Clone)]
enum State {
    /// There has been no link yet.
    Never,
    /// This one takes new connections.
    Up { number: u64, requests: SendRequest<Bytes>, open: Arc<Count> },
    /// There was one, and another one will come.
    Lost,
}

/// The links of this process.
#[derive(Debug)]
pub(super) struct Links {
    authority: String,
    /// Links so far.
    count: AtomicU64,
    state: watch::Sender<State>,
    /// Oldest first.
    drivers: Mutex<VecDeque<AbortHandle>>,
}

impl Links {
    /// Connections to `port` are waited with for a link where an earlier relay had one.
    pub(super) fn new(port: u16, had_link: bool) -> Self {
        let state = if had_link { State::Lost } else { State::Never };
        Self {
            authority: format!("egress:{port}"),
            count: AtomicU64::new(0),
            state: watch::Sender::new(state),
            drivers: Mutex::default(),
        }
    }

    /// Uses `link` for new connections, as soon as egress answers on it.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub(super) fn take(self: &Arc<Self>, link: OwnedFd) -> io::Result<()> {
        // Of a TCP socket too: this type reads, writes and shuts down, which is the same for all stream sockets.
        let stream = UnixStream::from_std(link.into())?;
        let links = Arc::clone(self);
        let driver = tokio::spawn(async move {
            if let Ok(Ok((requests, connection))) = timeout(HANDSHAKE_WAIT, handshake(stream)).await {
                links.drive(requests, connection).await;
            }
        });
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|driver| !driver.is_finished());
        drivers.push_back(driver.abort_handle());
        while drivers.len() > MAX_LINKS
            && let Some(oldest) = drivers.pop_front()
        {
            oldest.abort();
        }
        Ok(())
    }

    async fn drive(&self, requests: SendRequest<Bytes>, mut connection: Link) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let (pings, open) = (connection.ping_pong(), Arc::new(Count::default()));
        self.state.send_replace(State::Up { number, requests, open: Arc::clone(&open) });
        let (silent, rest) = (silent(pings, &open), rest(&open));
        tokio::pin!(silent, rest);
        let (mut count, mut wide, mut late) = (open.subscribe(), true, false);
        loop {
            tokio::select! {
                // Why it ended makes no difference here.
                _ = &mut connection => break,
                () = &mut silent => break,
                never = &mut rest => match never {},
                () = other_window(&mut count, wide, late) => {
                    let bytes = if wide { STREAM_BYTES } else { WIDE_STREAM_BYTES };
                    // Refused while egress has not taken in the change before.
                    late = connection.set_initial_window_size(bytes).is_err();
                    wide ^= !late;
                }
            }
        }
        self.lost(number);
    }

    fn lost(&self, number: u64) {
        self.state.send_if_modified(|state| {
            let current = matches!(state, State::Up { number: latest, .. } if *latest == number);
            if current {
                *state = State::Lost;
            }
            current
        });
    }

    /// Opens a stream for a connection; where a link was lost, waits for another one.
    ///
    /// # Errors
    /// There is no link; says how to answer the program.
    ///
    /// # Cancel safety
    /// Cancel safe: a stream that was opened and not returned is reset.
    pub(super) async fn open(&self, family: Family) -> Result<Opened, Refusal> {
        let deadline = Instant::now() + LINK_WAIT;
        let late = |_| Refusal::Unavailable;
        let mut states = self.state.subscribe();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                State::Never => return Err(Refusal::Offline),
                State::Up { number, requests, open } => {
                    let asked = self.request(family, requests, open);
                    if let Ok(opened) = timeout_at(deadline, asked).await.map_err(late)? {
                        return Ok(opened);
                    }
                    // It closes, or takes no new streams any more (GOAWAY).
                    self.lost(number);
                }
                State::Lost => {}
            }
            // An error: this process ends.
            let _ = timeout_at(deadline, states.changed()).await.map_err(late)?;
        }
    }

    async fn request(
        &self,
        family: Family,
        requests: SendRequest<Bytes>,
        open: Arc<Count>,
    ) -> Result<Opened, h2::Error> {
        let mut request = Request::new(());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = self.authority.parse().unwrap_or_default();
        let family = match family {
            Family::V4 => "4",
            Family::V6 => "6",
        };
        request.headers_mut().insert("rollbox-family", http::HeaderValue::from_static(family));
        let counted = Counted::of(open);
        let (response, sent) = requests.ready().await?.send_request(request, false)?;
        Ok(Opened { response, sent, counted })
    }
}

/// Completes when as many connections are open as another window is for; `late`: after a pause.
async fn other_window(open: &mut watch::Receiver<usize>, wide: bool, late: bool) {
    if late {
        sleep(WINDOW_PAUSE).await;
    }
    // An error cannot be: the sender outlives this.
    let _ = open.wait_for(|open| (*open <= FEW) != wide).await;
}

/// Completes when egress has not answered a ping in time: it stands still, or its machine has gone without a word, and
/// what is open would hang for ever. A link with nothing open is not pinged, so that it costs an idle sandbox nothing.
async fn silent(pings: Option<PingPong>, open: &Count) {
    let (mut open, Some(mut pings)) = (open.subscribe(), pings) else { return std::future::pending().await };
    loop {
        // An error cannot be: the sender is borrowed.
        let _ = open.wait_for(|open| *open > 0).await;
        sleep(PING_EVERY).await;
        match timeout(PONG_WAIT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection ends, and says so itself.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}

/// Gives memory back each time after the last connection, and once after the link has begun: that of a link that broke.
/// While one is open it is kept: of a download each page would be taken anew.
async fn rest(open: &Count) -> Infallible {
    let mut open = open.subscribe();
    loop {
        // An error cannot be: the sender is borrowed.
        let _ = open.wait_for(|open| *open == 0).await;
        if timeout(REST, open.wait_for(|open| *open > 0)).await.is_err() {
            sys::give_memory_back();
        }
        let _ = open.wait_for(|open| *open > 0).await;
    }
}

type Link = Connection<BufReader<UnixStream>, Bytes>;
type Handshaken = (SendRequest<Bytes>, Link);

async fn handshake(stream: UnixStream) -> Result<Handshaken, h2::Error> {
    Builder::new()
        .enable_push(false)
        .initial_window_size(WIDE_STREAM_BYTES)
        .initial_connection_window_size(LINK_BYTES)
        .data_frame_budget(FRAME_BUDGET)
        .max_frame_size(FRAME_BYTES)
        .max_send_buffer_size(SEND_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .handshake(BufReader::with_capacity(READ_BYTES, stream))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_that_never_was_is_not_waited_for_and_one_that_was_is_for_a_while() {
        let began = Instant::now();
        assert_eq!(Links::new(3128, false).open(Family::V4).await.err(), Some(Refusal::Offline));
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(Links::new(3128, true).open(Family::V6).await.err(), Some(Refusal::Unavailable));
        assert!(began.elapsed() >= LINK_WAIT);
    }

    #[tokio::test]
    async fn a_connection_that_waits_gets_the_next_link_and_an_ended_link_is_none() {
        let links = Arc::new(Links::new(3128, true));
        for _ in 0..2 {
            let waiting = tokio::spawn({
                let links = Arc::clone(&links);
                async move { links.open(Family::V4).await.is_ok() }
            });
            let (ours, egress) = std::os::unix::net::UnixStream::pair().unwrap();
            for end in [&ours, &egress] {
                end.set_nonblocking(true).unwrap();
            }
            links.take(ours.into()).unwrap();
            let egress = UnixStream::from_std(egress).unwrap();
            let mut egress = h2::server::handshake(egress).await.unwrap();
            let (request, _) = egress.accept().await.unwrap().unwrap();
            assert_eq!(request.uri().to_string(), "egress:3128");
            assert!(waiting.await.unwrap());
            let mut states = links.state.subscribe();
            drop((request, egress));
            states.wait_for(|state| matches!(state, State::Lost)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn few_connections_have_a_wide_window_and_many_a_narrow_one() {
        let links = Arc::new(Links::new(3128, true));
        let (ours, egress) = std::os::unix::net::UnixStream::pair().unwrap();
        for end in [&ours, &egress] {
            end.set_nonblocking(true).unwrap();
        }
        links.take(ours.into()).unwrap();
        let mut builder = h2::server::Builder::new();
        builder.max_send_buffer_size(2 * WIDE_STREAM_BYTES as usize);
        let mut egress: h2::server::Connection<_, Bytes> =
            builder.handshake(UnixStream::from_std(egress).unwrap()).await.unwrap();
        let mut opened = Vec::new();
        let mut answers = Vec::new();
        for _ in 0..=FEW {
            let (one, accepted) = tokio::join!(links.open(Family::V4), egress.accept());
            let (_, mut answer) = accepted.unwrap().unwrap();
            answers.push(answer.send_response(http::Response::new(()), false).unwrap());
            opened.push(one.unwrap());
        }
        // What of a stream may be sent at once, once what has changed it has come.
        let (first, mut window) = (&mut answers[0], usize::MAX);
        first.reserve_capacity(WIDE_STREAM_BYTES as usize);
        let mut see = async |wanted: u32, window: &mut usize| {
            while *window != wanted as usize {
                tokio::select! {
                    _ = egress.accept() => {}
                    () = sleep(WINDOW_PAUSE) => {}
                }
                *window = first.capacity();
            }
        };
        timeout(LINK_WAIT, see(STREAM_BYTES, &mut window)).await.unwrap();
        opened.pop();
        timeout(LINK_WAIT, see(WIDE_STREAM_BYTES, &mut window)).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_open_at_an_egress_that_stands_still_ends_and_a_link_with_nothing_open_stays() {
        let links = Arc::new(Links::new(3128, true));
        let (ours, egress) = std::os::unix::net::UnixStream::pair().unwrap();
        for end in [&ours, &egress] {
            end.set_nonblocking(true).unwrap();
        }
        links.take(ours.into()).unwrap();
        let mut egress = h2::server::handshake(UnixStream::from_std(egress).unwrap()).await.unwrap();
        let opening = tokio::spawn({
            let links = Arc::clone(&links);
            async move { links.open(Family::V4).await }
        });
        let (_, answer) = egress.accept().await.unwrap().unwrap();
        let opened = opening.await.unwrap().unwrap();
        let mut states = links.state.subscribe();
        tokio::time::pause();
        // Nobody polls the side of egress any more.
        states.wait_for(|state| matches!(state, State::Lost)).await.unwrap();
        assert!(opened.response.await.is_err());
        drop((egress, answer));
    }
}
