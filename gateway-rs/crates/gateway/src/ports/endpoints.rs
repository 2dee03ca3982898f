use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CACHE_CONTROL,
    CONTENT_TYPE, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE, VARY,
};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use wire::agent::{PortFrame, WaitPortRequest};
use wire::{Code, Problem};

use super::address::Outside;
use super::connection;
use super::cookies;
use super::credential::{self, Presented, Source};
use super::headers;
use super::place::Place;
use super::proxy::Proxied;
use super::raw::{MAX_MESSAGE_BYTES, Tunnel};
use super::state::Ports;
use crate::auth::{self, Bearer};
use crate::call::{Calls, authorized};
use crate::http::Failure;
use crate::http::Query;
use crate::http::fields;
use crate::http::request_id;
use crate::http::socket;

/// An authorized caller, and the rest of the query.
struct Caller {
    bearer: Bearer,
    /// The token and where it was; `None` for a public port that was called without a valid one.
    token: Option<(Source, String)>,
    query: Option<String>,
}

/// `GET /v1/sandboxes/{id}/ports/{port}`: whether something listens; waits up to `wait_ms` until it does.
pub(crate) async fn state(State(ports): State<Ports>, request: Request) -> Result<Response, Failure> {
    let _call = ports.calls.enter()?;
    let (mut head, _) = request.into_parts();
    let place = Place::of_path(head.uri.path())?;
    let caller = authorize(&ports.calls, &mut head, &place).await?;
    let wait_ms = Query::read(caller.query.as_deref(), &["wait_ms"])?.number("wait_ms")?.unwrap_or(0);
    let (route, _permit) = ports.calls.admit(&ports.gate, &caller.bearer).await?;
    let mut agent = ports.calls.agent(&route);
    let request = WaitPortRequest { port: place.port.into(), timeout_ms: wait_ms };
    let waited = agent.wait_port(authorized(request, &caller.bearer.header));
    let listening = ports.calls.ask_without_timeout(&route, waited).await?.listening;
    let body = json!({"port": place.port, "listening": listening}).to_string();
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
}

/// `/v1/sandboxes/{id}/ports/{port}/http/...`: any request to the server on that port.
pub(crate) async fn http(State(ports): State<Ports>, request: Request) -> Result<Response, Failure> {
    let path = request.uri().path();
    let place = Place::of_path(path)?;
    if path == place.prefix && matches!(*request.method(), Method::GET | Method::HEAD) {
        // Without the final slash, relative links of its pages would resolve to a path outside the port.
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        return Ok(redirect(StatusCode::PERMANENT_REDIRECT, &format!("{path}/{query}")));
    }
    proxy(ports, request, place).await
}

/// The same by host name, before any route is matched; requests to other hosts are passed on.
pub(crate) async fn by_host(
    State(ports): State<Ports>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    match ports.named(&request)? {
        Some(place) => proxy(ports, request, place).await,
        None => Ok(next.run(request).await),
    }
}

async fn proxy(ports: Ports, request: Request, place: Place) -> Result<Response, Failure> {
    let call = ports.calls.enter()?;
    let (mut head, body) = request.into_parts();
    let outside = Outside::of(&head);
    let caller = authorize(&ports.calls, &mut head, &place).await;
    if headers::is_preflight(&head)
        && caller.as_ref().is_err_and(|problem| problem.code == Code::Unauthenticated)
    {
        return Ok(allowed(&head));
    }
    let Caller { bearer, token, query } = caller?;
    if let Some((Source::Query, token)) = &token
        && matches!(head.method, Method::GET | Method::HEAD)
        && !headers::wants_websocket(&head)
    {
        return Ok(keep_token(token, &place, &outside, query.as_deref()));
    }
    let proxied = Proxied { ports, call, bearer, place, outside, query };
    Ok(proxied.send(Request::from_parts(head, body)).await?)
}

/// The answer to a preflight for a private port, which brings no token and so does not reach the server. It allows what
/// the page asks for, but no cookies: only a page that has the token itself can send the request that follows.
fn allowed(head: &Parts) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for (asked, answer) in [
        (ORIGIN, ACCESS_CONTROL_ALLOW_ORIGIN),
        (ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_ALLOW_METHODS),
        (ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_ALLOW_HEADERS),
    ] {
        if let Some(value) = head.headers.get(asked) {
            response.headers_mut().insert(answer, value.clone());
        }
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
    response
}

/// Moves the token from the URL, which users copy, to a cookie for this port's pages.
fn keep_token(token: &str, place: &Place, outside: &Outside, query: Option<&str>) -> Response {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{}{query}", place.prefix, place.path);
    // A path may begin with two slashes, which on their own would name another host.
    let absolute = format!("{}://{}{path}", outside.scheme, outside.host);
    let mut response = redirect(StatusCode::FOUND, if place.prefix.is_empty() { &absolute } else { &path });
    if let Some(cookie) = cookies::token_cookie(token, place, outside) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn redirect(status: StatusCode, to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(to) = HeaderValue::try_from(to) {
        headers.insert(LOCATION, to);
    }
    response
}

/// `GET /v1/sandboxes/{id}/ports/{port}/tcp`: a WebSocket whose binary messages are the bytes of a TCP connection.
pub(crate) async fn tcp(State(ports): State<Ports>, request: Request) -> Result<Response, Failure> {
    raw(ports, request, false).await
}

/// `GET /v1/sandboxes/{id}/ports/{port}/udp`: a WebSocket whose binary messages are one datagram each.
pub(crate) async fn udp(State(ports): State<Ports>, request: Request) -> Result<Response, Failure> {
    raw(ports, request, true).await
}

async fn raw(ports: Ports, request: Request, datagrams: bool) -> Result<Response, Failure> {
    let call = ports.calls.enter()?;
    let (mut head, _) = request.into_parts();
    let place = Place::of_path(head.uri.path())?;
    let Caller { bearer, query, .. } = authorize(&ports.calls, &mut head, &place).await?;
    Query::read(query.as_deref(), &[])?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &()).await.map_err(|rejection| {
        fields::invalid("upgrade", format!("this is a WebSocket over HTTP/1.1: {}", rejection.body_text()))
    })?;
    let (route, permit) = ports.calls.admit(&ports.gate, &bearer).await?;
    let first = PortFrame { port: place.port.into(), datagrams, ..PortFrame::default() };
    let frames = connection::open(&ports.calls, &bearer, &route, first).await?;
    let request_id = head.headers.get(request_id::HEADER).cloned().unwrap_or(HeaderValue::from_static(""));
    let tunnel =
        Tunnel { calls: ports.calls, route, frames, datagrams, request_id, _call: call, _place: permit };
    Ok(socket::bounded(upgrade, MAX_MESSAGE_BYTES).on_upgrade(|socket| tunnel.run(socket)))
}

/// Authorizes with the first token that is valid for the sandbox, else with the token of a public port.
async fn authorize(calls: &Calls, head: &mut Parts, place: &Place) -> Result<Caller, Problem> {
    if head.headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return Err(Problem::new(Code::Unauthenticated, "the Authorization header is given more than once"));
    }
    let verifier = calls.verifier();
    let Presented { tokens, query } = credential::take(head, |token| auth::is_ours(verifier, token));
    let mut refused = None;
    for token in tokens {
        match auth::check_token(verifier, &token.1, &place.sandbox_id) {
            Ok(bearer) => return Ok(Caller { bearer, token: Some(token), query }),
            Err(problem) => refused = refused.or(Some(problem)),
        }
    }
    let resolver = calls.resolver();
    let public = match resolver.directory().public(&place.sandbox_id, place.port) {
        // A caller with a refused token does not wait for the port to become public.
        None if refused.is_none() => resolver.becomes_public(&place.sandbox_id, place.port).await,
        known => known,
    };
    if let Some(route) = public
        && let Some(token) = route.ports.token(place.port)
    {
        return Ok(Caller { bearer: auth::for_public_port(&route, token), token: None, query });
    }
    Err(refused.unwrap_or_else(|| {
        let detail =
            format!("port {} of {} is private: bring the sandbox's token", place.port, place.sandbox_id);
        Problem::new(Code::Unauthenticated, detail)
    }))
}
