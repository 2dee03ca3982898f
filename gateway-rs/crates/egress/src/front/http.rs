use std::convert::Infallible;
use std::io;
use std::sync::Mutex;

use bytes::BytesMut;
use http::header::HOST;
use http::{HeaderValue, Method, Request, Response, Uri};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use program::replayed::Replayed;
use tokio::io::AsyncWriteExt as _;
use wire::egress::Verdict;

use super::answer::{Body, empty, refused};
use super::asking::{Asking, REQUEST_DEADLINE};
use super::{forward, tunnel};
use crate::outside::Reached;
use crate::policy::{self, Host, InvalidHost, PACKAGES, Refusal, Target};
use crate::sandbox::{Passage, Protocol};
use crate::stream::Carried;

/// Largest head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// A `CONNECT` whose answer is under way: what the stream is for after it, `None` where it was refused.
struct Answered {
    upgrade: OnUpgrade,
    opened: Option<(Reached, Passage)>,
}

/// Serves a client of HTTP to its end: any number of requests in absolute form, or one `CONNECT` as the last.
///
/// # Errors
/// The client or the server broke off.
pub(super) async fn serve(asking: &Asking, stream: Carried, first: BytesMut) -> io::Result<()> {
    let answered = Mutex::new(None);
    let service = service_fn(|request| answer(asking, request, &answered));
    let io = TokioIo::new(Replayed::new(first.freeze(), stream));
    builder().serve_connection(io, service).with_upgrades().await.map_err(io::Error::other)?;
    let Some(Answered { upgrade, opened }) = answered.into_inner().ok().flatten() else { return Ok(()) };
    let upgraded = upgrade.await.map_err(io::Error::other)?;
    let parts = upgraded.downcast::<TokioIo<Replayed<Carried>>>().map_err(|_| io::ErrorKind::Unsupported)?;
    let mut stream = parts.io.into_inner();
    match opened {
        Some((reached, passage)) => {
            tunnel::run(stream, BytesMut::from(parts.read_buf), reached, passage).await
        }
        None => stream.shutdown().await,
    }
}

/// How requests are read.
pub(super) fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .max_buf_size(HEAD_BYTES)
        .half_close(true);
    builder
}

async fn answer(
    asking: &Asking,
    mut request: Request<Incoming>,
    answered: &Mutex<Option<Answered>>,
) -> Result<Response<Body>, Infallible> {
    let connect = request.method() == Method::CONNECT;
    let asked = if connect { Protocol::Connect } else { Protocol::Http };
    let target = read(&request, asked).inspect_err(|refusal| {
        let host = request.uri().authority().map_or("", |authority| authority.as_str());
        asking.tell(host, 0, asked, refusal);
    });
    if !connect {
        let answer = match target {
            Ok((protocol, target)) => forward::request(asking, request, &target, protocol).await,
            Err(refusal) => Err(refusal),
        };
        return Ok(answer.unwrap_or_else(|refusal| refused(&refusal)));
    }
    // Also of a refused one: the library leaves the stream to whoever asks for it.
    let upgrade = hyper::upgrade::on(&mut request);
    let opened = match target {
        Ok((protocol, target)) => asking.open(&target, protocol).await,
        Err(refusal) => Err(refusal),
    };
    let (opened, response) = match opened {
        Ok(opened) => (Some(opened), Response::new(empty())),
        Err(refusal) => (None, refused(&refusal)),
    };
    if let Ok(mut answered) = answered.lock() {
        *answered = Some(Answered { upgrade, opened });
    }
    Ok(response)
}

/// By which way a request goes, and to which target.
pub(super) fn read(request: &Request<Incoming>, asked: Protocol) -> Result<(Protocol, Target), Refusal> {
    way(request, asked, target(request)?)
}

/// What a request is for. Whatever a server behind this proxy could read otherwise than this proxy is refused.
fn target(request: &Request<Incoming>) -> Result<Target, Refusal> {
    let uri = request.uri();
    let target =
        if request.method() == Method::CONNECT { connect_target(uri)? } else { absolute_target(uri)? };
    let mut hosts = request.headers().get_all(HOST).iter();
    let default = if request.method() == Method::CONNECT { None } else { Some(HTTP_PORT) };
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(target),
        (Some(host), None) if agrees(host, &target, default) => Ok(target),
        (Some(_), None) => Err(Refusal::bad_request(format!("{target}: the header Host names another host"))),
        (Some(_), Some(_)) => {
            Err(Refusal::bad_request(format!("{target}: there is more than one header Host")))
        }
    }
}

/// By which way a request for `target` goes, and to which target: one to the package cache is for an index.
fn way(request: &Request<Incoming>, asked: Protocol, target: Target) -> Result<(Protocol, Target), Refusal> {
    let to_cache = asked == Protocol::Http && target.port == HTTP_PORT;
    if !to_cache || !matches!(&target.host, Host::Name(name) if **name == *PACKAGES) {
        return Ok((asked, target));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::bad_request(format!("{PACKAGES} takes GET and HEAD alone")));
    }
    // Nobody reads it there, and what is left on a connection would be taken for the next request.
    if !request.body().is_end_stream() {
        return Err(Refusal::bad_request(format!("{PACKAGES} takes requests without a body")));
    }
    let index = policy::index(request.uri().path())
        .map_err(|why| Refusal::bad_request(format!("{PACKAGES}{}: {why}", request.uri().path())))?;
    Ok((Protocol::Packages, Target { host: index, port: HTTPS_PORT }))
}

const HTTP_PORT: u16 = 80;
/// By which a policy allows an index.
const HTTPS_PORT: u16 = 443;

fn connect_target(uri: &Uri) -> Result<Target, Refusal> {
    let authority = uri.authority().filter(|_| uri.scheme().is_none() && uri.path_and_query().is_none());
    let authority = authority.ok_or_else(|| Refusal::bad_request("CONNECT is for HOST:PORT"))?;
    parsed(authority.as_str(), None)
}

fn absolute_target(uri: &Uri) -> Result<Target, Refusal> {
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(authority)) => parsed(authority.as_str(), Some(HTTP_PORT)),
        (Some(scheme), _) => {
            let detail =
                format!("{scheme} is not forwarded: use CONNECT HOST:PORT for https, and http for the rest");
            Err(Refusal::bad_request(detail))
        }
        (None, _) => Err(Refusal::bad_request("this is a proxy: give the whole address, http://HOST/PATH")),
    }
}

fn parsed(text: &str, port: Option<u16>) -> Result<Target, Refusal> {
    Target::parse(text, port).map_err(|invalid| {
        let refusal = Refusal::bad_request(format!("{text}: {invalid}"));
        let odd = invalid == InvalidHost::OddAddress;
        Refusal { verdict: if odd { Verdict::DeniedAddress } else { refusal.verdict }, ..refusal }
    })
}

/// Whether a header `Host` is for the same host; one of a `CONNECT` may leave the port out, or be that of its scheme.
fn agrees(host: &HeaderValue, target: &Target, default: Option<u16>) -> bool {
    let named = host.to_str().ok().and_then(|text| Target::parse(text, default.or(Some(target.port))).ok());
    named.is_some_and(|named| named == *target)
}
