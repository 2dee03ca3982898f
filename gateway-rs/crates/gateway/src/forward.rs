//! Forwards everything under `/v1` that the gateway does not serve itself to the control plane, and its responses to
//! the client.

mod limits;

pub(crate) use limits::shortened;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri, response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use resolve::Address;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use wire::{Code, Problem};

use crate::drain::{self, Call, Drain};
use crate::http::body::{BrokenOff, Held, SILENCE, Timed};
use crate::http::{Failure, Peer};
use crate::telemetry::Metrics;
use program::hop_by_hop;
use program::transport::{Dialer, Stream};

/// Timeout of a connect. The control plane is on the same machine or in the same cluster.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// How long an idle connection is kept. Shorter than the 5 s after which uvicorn closes it: otherwise a request can
/// meet that close, and it is unknown whether the control plane has read it.
const IDLE: Duration = Duration::from_secs(2);

/// A body up to this size is kept for retries until the response arrives. Bodies of creates are smaller, except those
/// with many environment variables.
const KEPT_BYTES: u64 = 64 << 10;

/// Pauses between attempts: together as long as Kubernetes needs to remove a replica that ends from its Service (an
/// estimate).
const PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1)];

/// After so long without an answer a request that may be repeated is sent to another replica too: the one that has it
/// may stand still, with connections that its kernel keeps alive. By then Kubernetes has removed such a one from the
/// Service (three probes of 2 s, 3 s each). A create that only takes long has two connections from then on; the second
/// replica waits for the same sandbox.
const SECOND_AFTER: Duration = Duration::from_secs(20);

/// The replica that answers second is not hung up on for so long: a hang-up would tell it that the caller has gone,
/// and a replica that has not yet heard that the sandbox was given away would end it.
const HEARD_OUT: Duration = Duration::from_secs(120);

/// How many are heard out at a time; further ones are hung up on.
const MOST_HEARD_OUT: usize = 4096;

/// The media type of streams of events.
const EVENTS: &[u8] = b"text/event-stream";

/// The address of the client, for the control plane's audit entries.
const CLIENT_ADDRESS: &str = "rollbox-client-address";

pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

type Connector = BoxCloneSyncService<Uri, TokioIo<Stream>, io::Error>;

/// The HTTP client, with pooled connections to one control plane.
#[derive(Debug, Clone)]
pub(crate) struct Forwarder {
    client: Client<Connector, Timed>,
    drain: Drain,
    metrics: Arc<Metrics>,
    heard_out: Arc<Semaphore>,
}

impl Forwarder {
    pub(crate) fn new(address: Address, dialer: Arc<Dialer>, drain: Drain, metrics: Arc<Metrics>) -> Self {
        let connect = move |_: Uri| connect(Arc::clone(&dialer), address.clone());
        let connector = BoxCloneSyncService::new(tower::service_fn(connect));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Self { client, drain, metrics, heard_out: Arc::new(Semaphore::new(MOST_HEARD_OUT)) }
    }

    /// The progress of the shutdown.
    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Sends a client's request as a call that the shutdown waits for; returns the response with the call.
    ///
    /// # Errors
    /// `draining` once the shutdown has started or its time is over, `capacity_unavailable` when too many calls are
    /// under way, `invalid_argument` for a path that leads out of the API, and what [`Self::send`] raises.
    pub(crate) async fn exchange(
        &self,
        request: Request,
    ) -> Result<(http::Response<Incoming>, Call), Problem> {
        let call = self.drain.enter()?;
        let (head, body) = prepare(request)?;
        tokio::select! {
            biased;
            response = self.send(head, body) => Ok((response?, call)),
            () = self.drain.expired() => Err(drain::refused()),
        }
    }

    /// Makes an answer of the control plane one to the client.
    pub(crate) fn answered(&self, mut head: response::Parts, body: Body) -> Response {
        self.metrics.forwarded(head.status.as_u16());
        hop_by_hop::strip(&mut head.headers);
        Response::from_parts(head, body)
    }

    /// Sends a request. Retries where that is safe and may help (there are several replicas behind the address), and
    /// while some of the caller's time is left.
    ///
    /// # Errors
    /// `upstream_timeout`, or `invalid_argument` for a body that broke off.
    pub(crate) async fn send(&self, head: Parts, body: Body) -> Result<http::Response<Incoming>, Problem> {
        if body.size_hint().upper().is_none_or(|bytes| bytes > KEPT_BYTES) {
            return self
                .client
                .request(Request::from_parts(head, Timed::new(body, SILENCE)))
                .await
                .map_err(|e| failed(&e));
        }
        let began = Instant::now();
        let body =
            Timed::new(body, SILENCE).collect().await.map_err(|broken| unreadable(&broken))?.to_bytes();
        let idempotent = is_idempotent(&head);
        let (mut pauses, mut next_head) = (PAUSES.into_iter(), head.clone());
        loop {
            let asked = async {
                if idempotent && head.method != Method::DELETE {
                    self.ask(&head, next_head, &body, began).await
                } else {
                    self.client.request(kept(next_head, &body)).await
                }
            };
            let error = match asked.await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            // Without a connection nothing was sent, so any request may be retried.
            let Some(pause) = pauses.next().filter(|_| idempotent || error.is_connect()) else {
                return Err(failed(&error));
            };
            next_head = shortened(&head, began.elapsed() + pause).ok_or_else(|| out_of_time(&error))?;
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request, and the same to another replica when there is no answer for long. The first answer counts, but
    /// not a refusal of the second replica, which may be the one that has trouble. Not for deletes, whose second answer
    /// is that there is nothing.
    ///
    /// # Errors
    /// Neither has answered.
    async fn ask(
        &self,
        head: &Parts,
        sent: Parts,
        body: &Bytes,
        began: Instant,
    ) -> Result<http::Response<Incoming>, legacy::Error> {
        let mut first = self.client.request(kept(sent, body));
        if let Ok(answer) = tokio::time::timeout(SECOND_AFTER, &mut first).await {
            return answer;
        }
        let Some(again) = shortened(head, began.elapsed()) else {
            return first.await;
        };
        match select(first, self.client.request(kept(again, body))).await {
            Either::Left((Ok(response), second)) => {
                self.hear_out(second);
                Ok(response)
            }
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Ok(response), first)) if !is_refusal(response.status()) => {
                self.hear_out(first);
                Ok(response)
            }
            Either::Right((_, first)) => first.await,
        }
    }

    fn hear_out(&self, late: ResponseFuture) {
        if let Ok(permit) = Arc::clone(&self.heard_out).try_acquire_owned() {
            tokio::spawn(async move {
                drop(tokio::time::timeout(HEARD_OUT, late).await);
                drop(permit);
            });
        }
    }
}

/// Whether the same request may be answered otherwise elsewhere or later.
fn is_refusal(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// A request with a body that is kept for another one.
fn kept(head: Parts, body: &Bytes) -> Request<Timed> {
    Request::from_parts(head, Timed::new(body.clone().into(), SILENCE))
}

async fn connect(dialer: Arc<Dialer>, address: Address) -> io::Result<TokioIo<Stream>> {
    let stream = tokio::time::timeout(CONNECT_DEADLINE, dialer.connect(&address)).await;
    stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(TokioIo::new)
}

/// Forwards a request and streams the response back. No timeout: a create is held until its sandbox is ready.
///
/// When the client disconnects, the request to the control plane is dropped, with body and response.
pub(crate) async fn forward(
    State(forwarder): State<Forwarder>,
    request: Request,
) -> Result<Response, Failure> {
    let (response, call) = forwarder.exchange(request).await?;
    let (head, body) = response.into_parts();
    let events = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(EVENTS));
    let body =
        if events { ending(body, forwarder.drain.clone(), call) } else { Body::new(Held::new(body, call)) };
    Ok(forwarder.answered(head, body))
}

/// A stream of events, which has no end of its own: it ends when the shutdown starts, and its reader goes on elsewhere.
fn ending(body: Incoming, drain: Drain, call: Call) -> Body {
    let started = Box::pin(async move { drain.started().await });
    Body::new(Held::new(StreamBody::new(BodyStream::new(body).take_until(started)), call))
}

/// Whether a repeated request is safe: the control plane gives the same answer however often it arrives.
fn is_idempotent(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE)
        || head.headers.contains_key(IDEMPOTENCY_KEY)
}

/// Makes the request for the control plane.
///
/// # Errors
/// `invalid_argument` for a path that leads out of the API.
pub(crate) fn prepare(request: Request) -> Result<(Parts, Body), Problem> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    check_path(head.uri.path())?;
    let uri = format!("http://controlplane{path}");
    head.uri = uri
        .parse()
        .map_err(|e| Problem::new(Code::InvalidArgument, format!("the path {path:?} cannot be read: {e}")))?;
    head.version = http::Version::HTTP_11;
    hop_by_hop::strip(&mut head.headers);
    tell_peer(&mut head);
    head.extensions.clear();
    Ok((head, body))
}

/// Tells the address that the request came from; what the client says of it is dropped.
fn tell_peer(head: &mut Parts) {
    head.headers.remove(CLIENT_ADDRESS);
    let peer = head.extensions.get::<Peer>().and_then(|peer| HeaderValue::try_from(peer.0.to_string()).ok());
    if let Some(address) = peer {
        head.headers.insert(CLIENT_ADDRESS, address);
    }
}

/// Refuses paths that could lead out of `/v1`: a server behind this router may resolve dot segments that this router
/// did not.
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

/// The problem for a failed request: the client fell silent, or the control plane was not reached or broke the
/// connection. In the second case the same request can be sent again; its idempotency key makes that safe.
fn failed(error: &legacy::Error) -> Problem {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
        if let Some(broken) = reason.downcast_ref::<BrokenOff>() {
            return unreadable(broken);
        }
    }
    let what = if error.is_connect() { "cannot be reached" } else { "broke the connection" };
    Problem::new(Code::UpstreamTimeout, format!("the control plane {what}: {reason}"))
}

/// No end cause: the create may have begun, and a client that knows its key can still take it back.
fn out_of_time(error: &legacy::Error) -> Problem {
    let Problem { detail, .. } = failed(error);
    Problem::new(
        Code::UpstreamTimeout,
        format!("{detail}; nothing is left of the start timeout for another try"),
    )
}

fn unreadable(broken: &BrokenOff) -> Problem {
    Problem::new(Code::InvalidArgument, format!("the body could not be read: {broken}"))
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
