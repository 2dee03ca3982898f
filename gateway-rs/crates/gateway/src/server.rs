//! Client connections: accepted, limited in number and time; HTTP/1.1 and HTTP/2 (prior knowledge) on one port.

mod preface;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRef as _;
use http::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use program::replayed::Replayed;
use prometheus_client::metrics::gauge::Gauge;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::certificate::Certificate;
use crate::drain::Drain;
use crate::gateway::Gateway;
use crate::http::Peer;
use crate::http::body::Held;
use crate::ports::Ports;
use crate::router;
use crate::telemetry::Metrics;
use preface::Protocol;
use unread::{Turn, explained};

/// Connections at one time; further ones are closed at once. About 20 KiB each while idle: 320 MiB at most (an
/// estimate: eight clients with pooled connections to 2,000 sandboxes each).
const MAX_CONNECTIONS: usize = 16_384;

/// Calls at one time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 1024;

/// Timeout for a request's head. hyper counts it from the end of the request before, so it is also the keep-alive
/// timeout of an idle connection: longer than the 15 s (aiohttp) to 60 s after which clients close theirs.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Timeout for the first bytes of a new connection, which show its protocol; with TLS for the handshake too.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after an accept failed for lack of file descriptors, until some are freed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// TCP keep-alive: the kernel probes a silent client, and drops a client that has acknowledged nothing for `UNHEARD`
/// (TCP_USER_TIMEOUT). Otherwise a call without a timeout would hold its permit for as long as its sandbox lives, and
/// an answer its memory. Longer than the 40 s after which a slow reader of a WebSocket was told that it is too slow.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const UNHEARD: Duration = Duration::from_secs(45);

/// Unsent bytes that may wait in a client's socket: a slow reader of a command's output has to slow the command down,
/// and must not lose megabytes of it in a buffer when it reconnects.
const UNSENT_BYTES: u32 = 256 << 10;

/// By which a proxy says how its client has reached it; see `ports::address`.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// HTTP/2 pings detect peers that vanished.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The server of the public port.
#[derive(Debug)]
pub(crate) struct Server {
    metrics: Arc<Metrics>,
    drain: Drain,
    ports: Ports,
    router: Router,
    places: Arc<Semaphore>,
    connections: TaskTracker,
    /// When cancelled, every connection ends after its present answer.
    closing: CancellationToken,
    /// When cancelled, every connection ends at once.
    abort: CancellationToken,
}

impl Server {
    pub(crate) fn new(gateway: &Arc<Gateway>) -> Arc<Self> {
        Self::with_places(gateway, MAX_CONNECTIONS)
    }

    fn with_places(gateway: &Arc<Gateway>, places: usize) -> Arc<Self> {
        Arc::new(Self {
            ports: Ports::from_ref(gateway),
            router: router::router(gateway),
            metrics: Arc::clone(gateway.metrics()),
            drain: gateway.drain().clone(),
            places: Arc::new(Semaphore::new(places)),
            connections: TaskTracker::new(),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        })
    }

    /// Accepts connections, with a certificate those of TLS, until it is dropped or [`Server::close`] is called.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener, tls: Option<Arc<Certificate>>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.closing.cancelled() => return,
            };
            match accepted {
                Ok((stream, _)) => self.place(stream, tls.clone()),
                Err(e) => {
                    tracing::warn!(error = %e, "cannot accept a connection, retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Ends all connections gracefully, and aborts those that are left after `grace`.
    pub(crate) async fn close(&self, grace: Duration) {
        self.closing.cancel();
        self.connections.close();
        if tokio::time::timeout(grace, self.connections.wait()).await.is_err() {
            tracing::warn!(
                connections = self.connections.len(),
                "connections did not close in time, aborting them"
            );
        }
        self.abort();
        self.connections.wait().await;
    }

    /// Aborts all connections.
    pub(crate) fn abort(&self) {
        self.closing.cancel();
        self.abort.cancel();
        // Upgraded connections run in tasks of their own, which watch the drain.
        self.drain.start();
        self.drain.expire();
    }

    fn place(self: &Arc<Self>, stream: TcpStream, tls: Option<Arc<Certificate>>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.metrics.refused_connections.inc();
            return;
        };
        let (server, abort) = (Arc::clone(self), self.abort.clone());
        self.connections
            .spawn(async move { abort.run_until_cancelled(server.serve(stream, tls, place)).await });
    }

    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        tls: Option<Arc<Certificate>>,
        _place: OwnedSemaphorePermit,
    ) {
        let _counted = Counted::new(&self.metrics.client_connections);
        // A connection that has closed already has no peer address.
        let Ok(peer) = stream.peer_addr().map(|address| Peer(address.ip())) else { return };
        if tune(&stream).is_err() {
            return;
        }
        let Some(certificate) = tls else {
            return self.converse(stream, Client { peer, secured: false }).await;
        };
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(PREFACE_TIMEOUT, certificate.acceptor().accept(stream)) => shaken,
            () = self.closing.cancelled() => return,
        };
        // As below; one that does not trust the certificate hangs up.
        if let Ok(Ok(stream)) = shaken {
            self.converse(stream, Client { peer, secured: true }).await;
        }
    }

    async fn converse<S: Stream>(self: &Arc<Self>, mut stream: S, client: Client) {
        let preface = async { tokio::time::timeout(PREFACE_TIMEOUT, preface::read(&mut stream)).await? };
        let read = tokio::select! {
            read = preface => read,
            () = self.closing.cancelled() => Err(std::io::ErrorKind::Interrupted.into()),
        };
        // A client that disconnects, or speaks another protocol, is not worth a log line.
        if let Ok((protocol, first_bytes)) = read {
            let stream = Replayed::new(first_bytes, stream);
            match protocol {
                Protocol::Http1 => self.serve_http1(stream, client).await,
                Protocol::Http2 => self.serve_http2(TokioIo::new(stream), client).await,
            }
        }
    }

    async fn serve_http1<S: Stream>(&self, stream: Replayed<S>, client: Client) {
        let turn = Turn::default();
        let io = TokioIo::new(explained(stream, turn.clone()));
        let service = service_fn(|request| {
            turn.begin();
            self.in_turn(&turn, request, client)
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(64 << 10);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service).with_upgrades());
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = self.closing.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        drop(connection.await);
    }

    async fn serve_http2<S: Stream>(self: &Arc<Self>, io: TokioIo<Replayed<S>>, client: Client) {
        let server = Arc::clone(self);
        let service = service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { server.answer(request, client).await }
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = self.closing.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        drop(connection.await);
    }

    /// The answer to a request of HTTP/1, whose end `turn` is told.
    async fn in_turn(
        &self,
        turn: &Turn,
        request: http::Request<Incoming>,
        client: Client,
    ) -> Result<http::Response<Body>, std::convert::Infallible> {
        let response = self.answer(request, client).await?;
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        Ok(response.map(|body| Body::new(Held::new(body, turn.answer()))))
    }

    async fn answer(
        &self,
        mut request: http::Request<Incoming>,
        client: Client,
    ) -> Result<http::Response<Body>, std::convert::Infallible> {
        client.introduce(&mut request);
        Ok(router::answer(&self.metrics, &self.ports, self.router.clone(), request.map(Body::new)).await)
    }
}

/// Whose requests come by a connection.
#[derive(Debug, Clone, Copy)]
struct Client {
    peer: Peer,
    /// Whether it speaks TLS to this gateway.
    secured: bool,
}

impl Client {
    /// Has a request say whom it comes from, and how: behind TLS of the gateway's own there is no proxy that would.
    fn introduce<B>(self, request: &mut http::Request<B>) {
        request.extensions_mut().insert(self.peer);
        if self.secured {
            request.headers_mut().insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
        }
    }
}

/// What clients speak over: TCP, or TLS over it.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// No delay for small answers; a client that vanished, or takes nothing of its answer, loses the connection.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    let unheard_ms = u32::try_from(UNHEARD.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, unheard_ms)?)
}

/// Counts a connection for as long as it lives.
struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
