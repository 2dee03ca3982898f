//! What holds for any bytes of a client of HTTP.

use std::convert::Infallible;
use std::io::{self, Cursor, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::header::{AUTHORIZATION, CONNECTION, COOKIE, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Handle, Runtime};

use super::answer::{Body, empty, refused};
use super::{forward, http as requests, packages};
use crate::policy::{Host, Target};
use crate::sandbox::Protocol;

/// Turns of a connection that has all its bytes in memory: it yields now and then, and never waits for anybody.
const TURNS: usize = 1000;

thread_local! {
    static RUNTIME: io::Result<Runtime> = Builder::new_current_thread().enable_time().build();
}

/// Any bytes are refused, or are requests for a target that is what a server behind this proxy reads as their host.
pub fn check_requests(bytes: &[u8]) {
    // The library's deadlines are told a clock.
    let clock = RUNTIME.with(|runtime| runtime.as_ref().ok().map(|runtime| runtime.handle().clone()));
    let Some(_entered) = clock.as_ref().map(Handle::enter) else { return };
    let mut memory = Memory { unread: Cursor::new(bytes.to_vec()), written: Vec::new() };
    let service = service_fn(async |request| Ok::<_, Infallible>(answer(request)));
    let connection = requests::builder().serve_connection(TokioIo::new(&mut memory), service);
    let mut connection = std::pin::pin!(connection);
    let mut context = Context::from_waker(Waker::noop());
    let _ = (0..TURNS).find(|_| connection.as_mut().poll(&mut context).is_ready());
}

fn answer(request: Request<Incoming>) -> Response<Body> {
    let connect = request.method() == Method::CONNECT;
    let asked = if connect { Protocol::Connect } else { Protocol::Http };
    match requests::read(&request, asked) {
        Ok((_, target)) if connect => check_target(&target),
        Ok((protocol, target)) => check_forwarded(request, protocol, &target),
        Err(refusal) => return refused(&refusal),
    }
    Response::new(empty())
}

fn check_target(target: &Target) {
    assert_eq!(Target::parse(&target.to_string(), None).as_ref(), Ok(target));
}

fn check_forwarded(request: Request<Incoming>, protocol: Protocol, target: &Target) {
    check_target(target);
    let path = request.uri().path().to_owned();
    let mut sent = forward::outgoing(request, target);
    if protocol == Protocol::Packages {
        packages::to_cache(sent.headers_mut(), target, "");
        assert!(
            matches!(&target.host, Host::Name(name) if path.strip_prefix('/').is_some_and(|path| path.starts_with(&**name)))
        );
        assert!(!sent.headers().contains_key(AUTHORIZATION) && !sent.headers().contains_key(COOKIE));
    } else {
        let hosts: Vec<_> = sent.headers().get_all(HOST).iter().map(|host| host.to_str()).collect();
        assert!(
            matches!(hosts[..], [Ok(host)] if Target::parse(host, Some(80)).as_ref() == Ok(target)),
            "{sent:?}"
        );
    }
    assert!(sent.uri().authority().is_none() && sent.uri().path().starts_with('/'), "{sent:?}");
    assert!(sent.headers().get_all(CONNECTION).iter().eq(["close"]), "{sent:?}");
    assert!(!sent.headers().contains_key(TRANSFER_ENCODING), "{sent:?}");
}

/// A client whose bytes are all there, and which reads every answer.
struct Memory {
    unread: Cursor<Vec<u8>>,
    written: Vec<u8>,
}

impl AsyncRead for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.unread).poll_read(cx, buf)
    }
}

impl AsyncWrite for Memory {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.written.write(buf))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_without_a_path_has_one_at_its_server() {
        for address in ["http://a.test", "http://a.test?b", "http://a.test#c", "http://a.test?b#c"] {
            check_requests(format!("GET {address} HTTP/1.1\r\n\r\n").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn no_requests_break_it(
            line in "(GET|CONNECT|HEAD) (http://)?(a.test|[::1]|packages.rollbox.internal|127.1)(:80|:443)?(/pypi.org/|/%2e%2e|[?]q)?",
            headers in "((host|connection|cookie|transfer-encoding): ?(a.test|close|host|chunked|:80){1,3}\r\n){0,3}",
        ) {
            check_requests(format!("{line} HTTP/1.1\r\n{headers}\r\n").repeat(2).as_bytes());
        }
    }
}
