use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, EXPECT, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use program::hop_by_hop;
use tokio::task::JoinHandle;
use wire::egress::Verdict;

use super::answer::Body;
use super::asking::Asking;
use crate::policy::{PACKAGES, Refusal, Target};
use crate::sandbox::Protocol;
use crate::watched::Watched;

const HTTP_PORT: u16 = 80;
/// What the package cache is told. Nobody else may say it.
const INDEX: HeaderName = HeaderName::from_static("x-rollbox-index");
const UNTIL: HeaderName = HeaderName::from_static("x-rollbox-until");

/// Forwards one request over a connection of its own, which was decided on for it.
///
/// # Errors
/// It is not allowed, or the server does not answer in HTTP.
pub(super) async fn request(
    asking: &Asking,
    request: Request<Incoming>,
    target: &Target,
    protocol: Protocol,
) -> Result<Response<Body>, Refusal> {
    let (reached, passage) = asking.open(target, protocol).await?;
    let passage = Arc::new(passage);
    let mut request = outgoing(request, target);
    if protocol == Protocol::Packages {
        to_cache(request.headers_mut(), target, passage.until());
    }
    let broken = |what: String| {
        let verdict = if passage.is_cut() { Verdict::Cut } else { Verdict::Unreachable };
        let refusal = asking.sandbox.policy().refusal(verdict, "", format!("{target}: {what}"));
        passage.ends(&refusal);
        refusal
    };
    let io = TokioIo::new(Watched::new(reached.stream, Arc::clone(&passage)));
    let handshake = http1::Builder::new().handshake(io).await;
    let (mut sender, connection) = handshake.map_err(|e| broken(e.to_string()))?;
    let watch = Arc::clone(&passage);
    let driver = Driver(tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            why = watch.idle() => watch.ends(&why),
        }
    }));
    let answered = sender.send_request(request).await;
    let mut response = answered.map_err(|e| broken(format!("the server gave no answer in HTTP: {e}")))?;
    hop_by_hop::strip(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(|body| Driven { body, _driver: driver }.boxed()))
}

/// As the server gets it: for its path, with one header `Host`, and nothing that is for the proxy.
fn outgoing(request: Request<Incoming>, target: &Target) -> Request<Incoming> {
    let (mut head, body) = request.into_parts();
    hop_by_hop::strip(&mut head.headers);
    // This side has answered it already.
    head.headers.remove(EXPECT);
    let host = if target.port == HTTP_PORT { without_port(target) } else { target.to_string() };
    if let Ok(host) = HeaderValue::from_str(&host) {
        head.headers.insert(HOST, host);
    }
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    head.version = Version::HTTP_11;
    // An address may have a query and no path.
    head.uri = head.uri.path_and_query().cloned().map_or(Uri::from_static("/"), Uri::from);
    Request::from_parts(head, body)
}

/// Tells the cache which index the policy allows, and as of when; what is one program's own is not for a shared cache.
fn to_cache(headers: &mut HeaderMap, index: &Target, until: &str) {
    for name in [AUTHORIZATION, COOKIE, INDEX, UNTIL] {
        headers.remove(name);
    }
    headers.insert(HOST, HeaderValue::from_static(PACKAGES));
    if let Ok(index) = HeaderValue::from_str(&index.host.to_string()) {
        headers.insert(INDEX, index);
    }
    if let Some(until) = HeaderValue::from_str(until).ok().filter(|until| !until.is_empty()) {
        headers.insert(UNTIL, until);
    }
}

fn without_port(target: &Target) -> String {
    let whole = target.to_string();
    whole.strip_suffix(":80").map(str::to_owned).unwrap_or(whole)
}

/// The task of a connection to a server; it ends with what is read from it.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of an answer, which keeps its connection.
struct Driven {
    body: Incoming,
    _driver: Driver,
}

impl http_body::Body for Driven {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
