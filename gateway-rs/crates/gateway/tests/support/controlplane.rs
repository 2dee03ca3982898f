//! A fake control plane that shows what reached it: echoes, streams, holds and refuses.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use wire::{Code, Problem};

/// The header of a create that says how much time its caller has left.
pub const LEFT: &str = "start-timeout-ms";

/// The handle of a fake control plane; dropping it breaks every connection.
pub struct ControlPlane {
    state: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Default)]
struct Shared {
    arrived: watch::Sender<usize>,
    dropped: watch::Sender<usize>,
    release: Option<Semaphore>,
    refuses: AtomicBool,
}

impl ControlPlane {
    pub fn listen(path: &Path) -> Self {
        let state = Arc::new(Shared { release: Some(Semaphore::new(0)), ..Shared::default() });
        let router = Router::new()
            .route("/v1/echo", any(echo))
            .route("/v1/stream", get(streamed))
            .route("/v1/events", get(events))
            .route("/v1/sandboxes", post(held))
            .route("/v1/sandboxes/{id}", any(echo))
            .route("/v1/refused", get(refused))
            .with_state(Arc::clone(&state));
        let listener = UnixListener::bind(path).unwrap();
        let task = tokio::spawn(accept(listener, router)).abort_handle();
        Self { state, task }
    }

    /// From now on creates are refused at once, as by a replica that ends.
    pub fn refuse(&self) {
        self.state.refuses.store(true, Ordering::Relaxed);
    }

    /// Breaks every connection and stops listening.
    pub fn cut(&self) {
        self.task.abort();
    }

    /// Completes when this many creates have arrived.
    pub async fn arrived(&self, count: usize) {
        self.state.arrived.subscribe().wait_for(|arrived| *arrived >= count).await.unwrap();
    }

    /// Completes when this many creates or streams have lost their caller.
    pub async fn dropped(&self, count: usize) {
        let waited = self.state.dropped.subscribe().wait_for(|dropped| *dropped >= count).await.map(drop);
        waited.unwrap();
    }

    /// How many creates or streams have lost their caller.
    pub fn lost(&self) -> usize {
        *self.state.dropped.borrow()
    }

    /// Lets held creates and streams continue by one step each.
    pub fn release(&self, steps: usize) {
        self.state.release.as_ref().unwrap().add_permits(steps);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Not `axum::serve`, since its connections outlive it.
async fn accept(listener: UnixListener, router: Router) {
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(router.clone());
        let http1 = hyper::server::conn::http1::Builder::new();
        open.spawn(async move { drop(http1.serve_connection(TokioIo::new(stream), service).await) });
    }
}

struct Watched(Arc<Shared>, bool);

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.1 {
            self.0.dropped.send_modify(|dropped| *dropped += 1);
        }
    }
}

async fn step(state: &Shared) {
    state.release.as_ref().unwrap().acquire().await.unwrap().forget();
}

async fn echo(request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let headers: serde_json::Map<_, _> =
        head.headers.iter().map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap()))).collect();
    let seen = json!({
        "method": head.method.as_str(), "uri": head.uri.to_string(), "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    let answer_headers: HeaderMap = [
        (http::header::CONNECTION, "x-hop".parse().unwrap()),
        ("x-hop".parse().unwrap(), "1".parse().unwrap()),
        ("idempotency-replayed".parse().unwrap(), "true".parse().unwrap()),
    ]
    .into_iter()
    .collect();
    (StatusCode::CREATED, answer_headers, seen.to_string()).into_response()
}

/// Answers with the start timeout that it received.
async fn held(State(state): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    body.collect().await.unwrap();
    let mut watched = Watched(Arc::clone(&state), false);
    state.arrived.send_modify(|arrived| *arrived += 1);
    if state.refuses.load(Ordering::Relaxed) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    step(&state).await;
    watched.1 = true;
    let told = headers.get(LEFT).map(|left| (HeaderName::from_static(LEFT), left.clone()));
    (told.into_iter().collect::<HeaderMap>(), "created").into_response()
}

/// A stream of events that has one and no end.
async fn events() -> Response {
    let told = stream::iter([Ok::<_, Infallible>("id: 1\n\n")]).chain(stream::pending());
    ([(http::header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(told))
        .into_response()
}

/// Sends two chunks; the second one waits for a release.
async fn streamed(State(state): State<Arc<Shared>>) -> Response {
    let watched = Watched(Arc::clone(&state), false);
    let chunks = stream::unfold((0, watched), move |(n, mut watched)| {
        let state = Arc::clone(&state);
        async move {
            match n {
                0 => Some((Ok::<_, Infallible>("first "), (1, watched))),
                1 => {
                    step(&state).await;
                    watched.1 = true;
                    Some((Ok("second"), (2, watched)))
                }
                _ => None,
            }
        }
    });
    Body::from_stream(chunks.boxed()).into_response()
}

async fn refused() -> Response {
    let body = Problem::new(Code::QuotaExceeded, "sandboxes: 3 of 3 used").to_json("req-cp", Some(250));
    (StatusCode::TOO_MANY_REQUESTS, [("content-type", "application/problem+json")], body.to_string())
        .into_response()
}

/// How long anything may take before a test has failed.
pub const LIMIT: Duration = Duration::from_secs(40);
