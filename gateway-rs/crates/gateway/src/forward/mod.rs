//! Everything under `/v1` that is not an exec goes to the control plane as it is, and comes back as it is.

mod body;
mod headers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use resolve::Address;
use tower::util::BoxCloneSyncService;
use wire::{Code, Problem};

use self::body::{BrokenOff, Held, Timed};
use crate::drain;
use crate::error::Failure;
use crate::gateway::Gateway;
use crate::transport::Stream;

/// The control plane is beside the gateway or in the same cluster.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// Shorter than the 5 s after which uvicorn closes an idle connection: else a request meets the closing, and nobody
/// can say whether it was read.
const IDLE: Duration = Duration::from_secs(2);

type Connector = BoxCloneSyncService<Uri, TokioIo<Stream>, io::Error>;

/// The client side: pooled connections to one control plane.
#[derive(Debug)]
pub(crate) struct Forwarder {
    client: Client<Connector, Timed>,
}

impl Forwarder {
    pub(crate) fn new(address: Address) -> Self {
        let connector = BoxCloneSyncService::new(tower::service_fn(move |_: Uri| connect(address.clone())));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Self { client }
    }
}

async fn connect(address: Address) -> io::Result<TokioIo<Stream>> {
    let stream = tokio::time::timeout(CONNECT_DEADLINE, Stream::connect(&address)).await;
    stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(TokioIo::new)
}

/// Sends a request on and streams the answer back. No deadline: a create is held until its sandbox is ready.
///
/// When the client goes away the request to the control plane is dropped, body and answer too.
pub(crate) async fn forward(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Response, Failure> {
    let call = gateway.enter()?;
    let request = prepare(request)?;
    let response = tokio::select! {
        biased;
        response = gateway.forwarder.client.request(request) => response.map_err(|e| failed(&e))?,
        () = gateway.drain.expired() => return Err(drain::refused().into()),
    };
    gateway.metrics.forwarded(response.status().as_u16());
    let (mut head, body) = response.into_parts();
    headers::strip(&mut head.headers);
    Ok(Response::from_parts(head, Body::new(Held::new(body, call))))
}

fn prepare(request: Request) -> Result<http::Request<Timed>, Problem> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    check_path(head.uri.path())?;
    let uri = format!("http://controlplane{path}");
    head.uri = uri
        .parse()
        .map_err(|e| Problem::new(Code::InvalidArgument, format!("the path {path:?} cannot be read: {e}")))?;
    head.version = http::Version::HTTP_11;
    head.extensions.clear();
    headers::strip(&mut head.headers);
    Ok(Request::from_parts(head, Timed::new(body)))
}

/// No way out of `/v1`: a server behind may resolve dots that the router here did not.
fn check_path(path: &str) -> Result<(), Problem> {
    let dots = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    let escaped = path.to_ascii_lowercase();
    if path.split('/').any(dots) || escaped.contains("%2f") || escaped.contains("%5c") || path.contains('\\')
    {
        let detail = format!("the path {path:?} has dot segments or escaped slashes");
        return Err(Problem::new(Code::InvalidArgument, detail).with("field", "path"));
    }
    Ok(())
}

/// The client's own silence, or whatever stands between here and the control plane: then the same request can be sent
/// again, its idempotency key makes that safe.
fn failed(error: &legacy::Error) -> Problem {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
        if let Some(broken) = reason.downcast_ref::<BrokenOff>() {
            return Problem::new(Code::InvalidArgument, format!("the body could not be read: {broken}"));
        }
    }
    let what = if error.is_connect() { "cannot be reached" } else { "broke the connection" };
    Problem::new(Code::UpstreamTimeout, format!("the control plane {what}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::check_path;

    #[test]
    fn no_path_leads_out() {
        for path in [
            "/v1/../metrics",
            "/v1/./x",
            "/v1/%2e%2E/metrics",
            "/v1/.%2e",
            "/v1/a%2fb",
            "/v1/a%5Cb",
            "/v1/a\\b",
        ] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn ordinary_paths_pass() {
        for path in ["/v1/sandboxes", "/v1/sandboxes/sb-1/extend", "/v1/a.b/..c/%20", "/v1/"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
    }
}
