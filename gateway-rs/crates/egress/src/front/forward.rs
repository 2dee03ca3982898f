use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST};
use http::{HeaderValue, Request, Response, Uri, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use program::hop_by_hop;
use prometheus_client::metrics::counter::Counter;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::egress::Verdict;

use super::answer::Body;
use super::asking::Asking;
use super::packages;
use crate::limited_stream::LimitedStream;
use crate::policy::{Refusal, Target};
use crate::sandbox::Protocol;

const HTTP_PORT: u16 = 80;

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
    let began = Instant::now();
    let answered = forwarded(asking, request, target, protocol).await;
    let result = if protocol == Protocol::Packages { packages::result(&answered) } else { None };
    let given = result.map(|result| {
        let index = target.host.to_string();
        asking.sandbox.common().metrics.packages(&index, result, began.elapsed())
    });
    answered.map(|answer| answer.map(|body| Driven { given, ..body }.boxed()))
}

async fn forwarded(
    asking: &Asking,
    request: Request<Incoming>,
    target: &Target,
    protocol: Protocol,
) -> Result<Response<Driven>, Refusal> {
    let (reached, passage) = asking.open(target, protocol).await?;
    let passage = Arc::new(passage);
    let mut request = outgoing(request, target);
    if protocol == Protocol::Packages {
        packages::to_cache(request.headers_mut(), target, passage.until());
    }
    let (verdict, server) = match protocol {
        Protocol::Packages => (Verdict::PackagesSilent, "package cache"),
        _ => (Verdict::Unreachable, "server"),
    };
    let broken = |e: hyper::Error| {
        let verdict = if passage.is_cut() { Verdict::Cut } else { verdict };
        let detail = format!("{target}: the {server} gave no answer in HTTP: {e}");
        let refusal = asking.sandbox.policy().refusal(verdict, "", detail);
        passage.ends(&refusal);
        refusal
    };
    let io = TokioIo::new(LimitedStream::new(reached.stream, Arc::clone(&passage)));
    let handshake = http1::Builder::new().handshake(io).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    let watch = Arc::clone(&passage);
    let driver = Driver(tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            why = watch.idle() => watch.ends(&why),
        }
    }));
    let answered = sender.send_request(request).await;
    let mut response = answered.map_err(broken)?;
    hop_by_hop::strip(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(|body| Driven { body, given: None, _driver: driver }))
}

/// As the server gets it: for its path, with one header `Host`, and nothing that is for the proxy.
pub(super) fn outgoing(request: Request<Incoming>, target: &Target) -> Request<Incoming> {
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
    // An address may have a query and no path, or nothing but a fragment, which would leave no path to ask for.
    let path = head.uri.path_and_query().filter(|path| *path != "/").cloned();
    head.uri = path.map_or(Uri::from_static("/"), Uri::from);
    Request::from_parts(head, body)
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
    /// Counts what it has given.
    given: Option<Counter>,
    _driver: Driver,
}

impl http_body::Body for Driven {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(given), Some(Ok(data))) = (&self.given, &frame) {
            given.inc_by(data.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
