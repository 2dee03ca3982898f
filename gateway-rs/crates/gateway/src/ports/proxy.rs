use std::error::Error as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Version};
use http_body::Body as _;
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use resolve::Route;
use tokio::io::copy_bidirectional_with_sizes;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wire::agent::PortFrame;
use wire::{Code, Problem};

use super::address::Outside;
use super::connection::{self, CHUNK_BYTES, Connection, status_of};
use super::headers;
use super::place::Place;
use super::state::Ports;
use crate::admission::Permit;
use crate::auth::Bearer;
use crate::drain::Call;
use crate::http::Peer;
use crate::http::body::Held;
use crate::leg::Way;

/// Limits of the head of a server's response. Servers with many cookies or policies have long ones.
const MAX_HEAD_BYTES: usize = 256 << 10;
const MAX_HEADERS: usize = 1000;

/// A request on its way to a server in a sandbox.
pub(super) struct Proxied {
    pub(super) ports: Ports,
    pub(super) call: Call,
    pub(super) bearer: Bearer,
    pub(super) place: Place,
    pub(super) outside: Outside,
    /// The query as the server sees it.
    pub(super) query: Option<String>,
}

impl Proxied {
    /// Sends the request and streams the response back, or becomes the tunnel of a WebSocket. No timeout: a server may
    /// take its time, and a stream of events has no end.
    ///
    /// # Errors
    /// `port_unreachable` where nothing listens or the server does not speak HTTP; `invalid_argument` for a request
    /// that cannot be forwarded; else the reason why the sandbox cannot be called.
    ///
    /// # Cancel safety
    /// Dropping it aborts the connection to the server.
    pub(super) async fn send(mut self, request: Request) -> Result<Response, Problem> {
        let (mut head, body) = request.into_parts();
        if head.method == Method::CONNECT {
            return Err(
                Problem::new(Code::InvalidArgument, "CONNECT is not offered here").with("field", "method")
            );
        }
        let switch = headers::wants_websocket(&head);
        let client = head.extensions.remove::<OnUpgrade>().filter(|_| switch);
        let length_given = head.headers.contains_key(CONTENT_LENGTH);
        self.prepare(&mut head, client.is_some())?;
        if body.is_end_stream() {
            headers::without_body(&mut head.headers, &head.method, length_given);
        } else if body.size_hint().exact().is_none() {
            // Without it the library leaves out such a body of GET and HEAD.
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let only_head = head.method == Method::HEAD;
        let (Ports { calls, gate, .. }, bearer) = (&self.ports, &self.bearer);
        let (route, permit) = calls.admit(gate, bearer).await?;
        self.place.ip = route.address.ip();
        let leg = calls.leg(Way::Out, &route);
        let first = PortFrame { port: self.place.port.into(), ticket: leg.ticket(), ..PortFrame::default() };
        let frames = connection::open(calls, bearer, &route, first).await?;
        let (mut sender, abort) = self.handshake(Connection::new(frames, leg), &route).await?;
        let answered = sender.send_request(Request::from_parts(head, body));
        let mut response = self.answered(&route, answered).await?;
        headers::to_client(response.headers_mut(), &self.place, &self.outside);
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            if only_head && !response.headers().contains_key(CONTENT_LENGTH) {
                // Otherwise the length of what is not sent would be told, 0.
                return Ok(response.map(|_| Body::from_stream(stream::empty::<io::Result<Bytes>>())));
            }
            let Self { call, .. } = self;
            return Ok(response.map(|body| Body::new(Held::new(body, (call, permit, abort)))));
        }
        let client =
            client.ok_or_else(|| not_http(&self.place, "it switched protocols without being asked"))?;
        self.tunnel(client, response, permit, abort)
    }

    fn prepare(&self, head: &mut Parts, switch: bool) -> Result<(), Problem> {
        let peer = head.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        head.uri = self.place.target(self.query.as_deref())?;
        head.version = Version::HTTP_11;
        head.extensions.clear();
        headers::to_server(&mut head.headers, &self.place, &self.outside, peer, switch);
        Ok(())
    }

    /// Starts HTTP on a connection. The connection's task ends with it, with the guard or with the drain.
    async fn handshake(
        &self,
        connection: Connection,
        route: &Arc<Route>,
    ) -> Result<(http1::SendRequest<Body>, tokio_util::sync::DropGuard), Problem> {
        let mut builder = http1::Builder::new();
        // As browsers read answers of careless servers.
        builder
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true);
        let handshake = builder.handshake(TokioIo::new(connection));
        let (sender, connection) = self.answered(route, handshake).await?;
        let (abort, drain) = (CancellationToken::new(), self.ports.calls.drain().clone());
        let guard = abort.clone().drop_guard();
        self.ports.tunnels.spawn(async move {
            tokio::select! {
                // The sender of the request or the reader of the response gets the error.
                _ = connection.with_upgrades() => {}
                () = abort.cancelled() => {}
                () = drain.expired() => {}
            }
        });
        Ok((sender, guard))
    }

    async fn answered<T>(
        &self,
        route: &Arc<Route>,
        answer: impl Future<Output = hyper::Result<T>>,
    ) -> Result<T, Problem> {
        let mut no_http = None;
        let asked = async {
            answer.await.map_err(|error| match status_of(&error) {
                Some(status) => status.clone(),
                None => {
                    no_http = Some(error);
                    Status::unknown("no HTTP")
                }
            })
        };
        match self.ports.calls.interruptible(route, asked).await {
            Ok(answer) => Ok(answer),
            Err(interrupted) => match no_http {
                Some(error) if error.is_parse_too_large() => Err(too_large(&self.place)),
                Some(error) if error.is_user() => Err(unreadable(&error)),
                Some(error) => Err(not_http(&self.place, &error.to_string())),
                None => Err(interrupted.explain(&self.ports.calls, route).await),
            },
        }
    }

    /// Copies both directions of a WebSocket until one side, the sandbox or the drain ends it.
    fn tunnel(
        self,
        client: OnUpgrade,
        mut response: http::Response<hyper::body::Incoming>,
        permit: Permit,
        abort: tokio_util::sync::DropGuard,
    ) -> Result<Response, Problem> {
        let server = hyper::upgrade::on(&mut response);
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        headers::switching(answer.headers_mut());
        let drain = self.ports.calls.drain().clone();
        self.ports.tunnels.spawn(async move {
            let _held = (self.call, permit);
            tokio::select! {
                () = carry(client, server, abort) => {}
                () = drain.expired() => {}
            }
        });
        Ok(answer)
    }
}

async fn carry(client: OnUpgrade, server: OnUpgrade, abort: tokio_util::sync::DropGuard) {
    let Ok((client, server)) = tokio::try_join!(client, server) else { return };
    // From here on this task owns the connection; the connection's own task has ended.
    drop(abort.disarm());
    let io = |upgraded: Upgraded| TokioIo::new(upgraded);
    let (mut client, mut server) = (io(client), io(server));
    // The side that broke the connection needs no report.
    drop(copy_bidirectional_with_sizes(&mut client, &mut server, CHUNK_BYTES, CHUNK_BYTES).await);
}

fn not_http(place: &Place, why: &str) -> Problem {
    let detail = format!("what listens on port {} of the sandbox does not answer in HTTP: {why}", place.port);
    Problem::new(Code::PortUnreachable, detail).with("port", place.port).with("reason", "no_http")
}

/// The client's own body broke off, or is in no valid chunks.
fn unreadable(error: &hyper::Error) -> Problem {
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    Problem::new(Code::InvalidArgument, format!("the body of this request cannot be read: {why}"))
        .with("field", "body")
}

fn too_large(place: &Place) -> Problem {
    let detail = format!(
        "the headers of the server on port {} are more than {} KiB or more than {MAX_HEADERS}",
        place.port,
        MAX_HEAD_BYTES >> 10
    );
    Problem::new(Code::PortHeadTooLarge, detail).with("port", place.port)
}
