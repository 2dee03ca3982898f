//! Connections: their limits, their timeouts, and graceful shutdown.
//!
//! Any process that can reach the socket can connect. So a connection counts as unauthenticated until a call with a
//! valid token has come over it: the number of unauthenticated ones is limited, each lives for seconds, and when a new
//! one exceeds the limit the oldest is closed. A caller that has a token shows it one round trip after it has connected,
//! so this does not affect it. A leg counts as unauthenticated until the call that waits for it has taken it.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;
use wire::agent::agent_server::AgentServer;

use super::agent::Service;
use super::listen::{Listener, Stream};
use super::uses::{Held, Uses};
use crate::auth::{Auth, Authenticated, CalledPath};
use crate::leg::{self, Legs};

/// The largest input (16 MiB) and the largest answer (two outputs of 16 MiB) with room to spare.
const MAX_MESSAGE_BYTES: usize = 40 << 20;
/// A gateway keeps one connection; a few more come from other replicas and the control plane.
const MAX_KNOWN: usize = 64;
/// With the buffers of each (`WINDOW_BYTES` of unsolicited data, and a frame in transit) they take 24 MiB at most.
const MAX_UNAUTHENTICATED: usize = 64;
const UNAUTHENTICATED_LIFETIME: Duration = Duration::from_secs(5);
/// Time for calls that were sent before the peer received the notice that they come too late.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_STREAMS: u32 = 1024;
/// A token has 4 KiB at most.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Small: the peer is near, and every connection holds such buffers.
const WINDOW_BYTES: u32 = 256 << 10;
/// The size in which callers send: one message of an upload with its header.
const FRAME_BYTES: u32 = 128 << 10;
/// The window of all streams of a connection together. What the consumer of a stream in the sandbox does not take stays
/// unread in that stream's window, and must not block the other calls. 256 such streams are what a gateway allows a
/// sandbox.
const CONNECTION_WINDOW_BYTES: u32 = 2 * 256 * WINDOW_BYTES;
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// A peer whose machine has failed closes nothing, and without pings its calls would count as waiters for ever.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failed accept (out of descriptors) an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Agent = AgentServer<Service>;

/// Serves until `draining` turns true. Then it accepts no new connections or calls, and waits up to `grace` for those
/// under way.
pub async fn serve(
    listener: Listener,
    service: Service,
    auth: Auth,
    mut draining: watch::Receiver<bool>,
    grace: Duration,
) {
    let (uses, legs) = (service.uses(), service.legs());
    let agent = AgentServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let mut connections = Connections::new(agent, auth, uses, legs, draining.clone());
    let mut drained = std::pin::pin!(draining.wait_for(|draining| *draining));
    loop {
        tokio::select! {
            biased;
            _ = &mut drained => break,
            Some(_) = connections.tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok(Some(stream)) => connections.take(stream),
                Ok(None) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let all_closed = async { while connections.tasks.join_next().await.is_some() {} };
    // Calls that are not done by then end with the process.
    let _ = timeout(grace, all_closed).await;
}

struct Connections {
    agent: Agent,
    auth: Auth,
    uses: Arc<Uses>,
    legs: Legs,
    draining: watch::Receiver<bool>,
    places: Arc<Semaphore>,
    tasks: JoinSet<()>,
    /// Oldest first; those that are authenticated or closed by then are removed when the next one comes.
    unauthenticated: VecDeque<(AbortHandle, Authenticated)>,
}

impl Connections {
    fn new(agent: Agent, auth: Auth, uses: Arc<Uses>, legs: Legs, draining: watch::Receiver<bool>) -> Self {
        let places = Arc::new(Semaphore::new(MAX_KNOWN));
        Self {
            agent,
            auth,
            uses,
            legs,
            draining,
            places,
            tasks: JoinSet::new(),
            unauthenticated: VecDeque::new(),
        }
    }

    fn take(&mut self, stream: Box<dyn Stream>) {
        self.unauthenticated.retain(|(task, authenticated)| !authenticated.is_set() && !task.is_finished());
        while self.unauthenticated.len() >= MAX_UNAUTHENTICATED
            && let Some((oldest, _)) = self.unauthenticated.pop_front()
        {
            oldest.abort();
        }
        let authenticated = Authenticated::default();
        let agent = InterceptedService::new(self.agent.clone(), self.auth.on(authenticated.clone()));
        let places = Arc::clone(&self.places);
        let uses = Arc::clone(&self.uses);
        let (legs, mut draining, caller) = (self.legs.clone(), self.draining.clone(), authenticated.clone());
        let task = async move {
            match first_byte(&*stream, draining.clone()).await {
                Some(first) if first == leg::MARK[0] => {
                    tokio::select! {
                        _ = timeout(UNAUTHENTICATED_LIFETIME, legs.bring(stream)) => {}
                        _ = draining.wait_for(|draining| *draining) => {}
                    }
                }
                Some(_) => connection(stream, agent, caller, uses, places, draining).await,
                None => {}
            }
        };
        self.unauthenticated.push_back((self.tasks.spawn(task), authenticated));
    }
}

/// The first byte, by which a leg is recognized; `None` when it does not come in time.
async fn first_byte(stream: &dyn Stream, mut draining: watch::Receiver<bool>) -> Option<u8> {
    tokio::select! {
        biased;
        first = timeout(UNAUTHENTICATED_LIFETIME, poll_fn(|cx| stream.poll_first(cx))) => first.ok()?.ok(),
        _ = draining.wait_for(|draining| *draining) => None,
    }
}

async fn connection(
    stream: Box<dyn Stream>,
    agent: InterceptedService<Agent, Auth>,
    authenticated: Authenticated,
    uses: Arc<Uses>,
    places: Arc<Semaphore>,
    mut draining: watch::Receiver<bool>,
) {
    let agent = TowerToHyperService::new(agent);
    let caller = authenticated.clone();
    let named = service_fn(move |mut request: http::Request<Incoming>| {
        let path = request.uri().path().to_owned();
        request.extensions_mut().insert(CalledPath(path.clone()));
        let mut answered = Box::pin(agent.call(request));
        let (uses, caller) = (Arc::clone(&uses), caller.clone());
        async move {
            // The token is checked when the call is polled first. A refused call must not count as use, or the
            // sandbox's own code could keep it alive.
            let mut under_way = None;
            let answer = poll_fn(|cx| {
                let polled = answered.as_mut().poll(cx);
                if under_way.is_none() && caller.is_set() {
                    under_way = uses.begin(&path);
                }
                polled
            });
            answer.await.map(|answer| answer.map(|body| Held::new(body, under_way)))
        }
    });
    let served = protocol().serve_connection(TokioIo::new(stream), named);
    let mut served = std::pin::pin!(served);
    let accepted = async {
        timeout(UNAUTHENTICATED_LIFETIME, authenticated.set()).await.ok()?;
        places.try_acquire().ok()
    };
    // How a connection ends is not reported: each call has its own answer.
    let place = tokio::select! {
        _ = served.as_mut() => return,
        place = accepted => place,
        _ = draining.wait_for(|draining| *draining) => None,
    };
    if place.is_some() {
        tokio::select! {
            _ = served.as_mut() => return,
            _ = draining.wait_for(|draining| *draining) => {}
        }
    }
    served.as_mut().graceful_shutdown();
    match place {
        // Calls under way may end; the drain as a whole has its own timeout.
        Some(_place) => drop(served.await),
        None => drop(timeout(CLOSE_TIMEOUT, served).await),
    }
}

fn protocol() -> http2::Builder<TokioExecutor> {
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    protocol
}
