//! Deletes: forwarded, and answered once this gateway has heard of every end that the answer names, so that no call
//! that its client sends after the answer reaches a deleted sandbox.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use resolve::{Directory, Found};
use serde::Deserialize;
use wire::{Code, Problem};

use crate::drain;
use crate::forward::{self, Forwarder};
use crate::http::Failure;
use crate::http::body::{BrokenOff, Held, SILENCE, Timed};

/// How long an answer is held back for the ends. The route feed brings them within milliseconds; a feed that is lost
/// reconnects and brings them then, and the ends are on record whatever the feed does.
const END_WAIT: Duration = Duration::from_millis(500);

/// The largest answer to a delete of many that is read for its ids; a larger one passes as it is. A bound on memory
/// only: an id takes about 30 bytes of it, so this is hundreds of thousands of sandboxes.
const ANSWER_BYTES: u64 = 16 << 20;

/// Forwards deletes.
#[derive(Debug, Clone)]
pub(crate) struct Deletes {
    forwarder: Forwarder,
    directory: Arc<Directory>,
}

/// What the answer to a delete of many has of its sandboxes. Those that `failed` have ended as well: the cluster has
/// not confirmed in time that nothing of them runs.
#[derive(Deserialize)]
struct Deleted<'a> {
    #[serde(borrow)]
    deleted: Vec<&'a str>,
    #[serde(borrow)]
    failed: Vec<Unconfirmed<'a>>,
}

#[derive(Deserialize)]
struct Unconfirmed<'a> {
    id: &'a str,
}

impl Deletes {
    pub(crate) fn new(forwarder: Forwarder, directory: Arc<Directory>) -> Self {
        Self { forwarder, directory }
    }

    /// Completes when the routes of these sandboxes are over, or after [`END_WAIT`].
    ///
    /// Cost: one look-up for each sandbox, and a waiting receiver for each that has a route.
    async fn heard_of(&self, sandbox_ids: impl IntoIterator<Item = &str>) {
        let routes: Vec<_> = sandbox_ids
            .into_iter()
            .filter_map(|id| match self.directory.find(id) {
                Found::Live(route) => Some(route),
                Found::Ended(_) | Found::Unknown => None,
            })
            .collect();
        let over = join_all(routes.iter().map(|route| route.over()));
        let _ = tokio::time::timeout(END_WAIT, over).await;
    }
}

/// Deletes one sandbox.
pub(crate) async fn delete(
    State(deletes): State<Deletes>,
    Path(sandbox_id): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let answer = forward::forward(State(deletes.forwarder.clone()), request).await?;
    if answer.status().is_success() {
        deletes.heard_of([sandbox_id.as_str()]).await;
    }
    Ok(answer)
}

/// Deletes the sandboxes of labels, of an idempotency key or of a group.
pub(crate) async fn delete_many(
    State(deletes): State<Deletes>,
    request: Request,
) -> Result<Response, Failure> {
    let (response, call) = deletes.forwarder.exchange(request).await?;
    let (head, body) = response.into_parts();
    let is_small = body.size_hint().exact().is_some_and(|bytes| bytes <= ANSWER_BYTES);
    if !head.status.is_success() || !is_small {
        return Ok(deletes.forwarder.answered(head, Body::new(Held::new(body, call))));
    }
    let body = tokio::select! {
        biased;
        body = Timed::new(Body::new(body), SILENCE).collect() => body.map_err(|e| broken(&e))?.to_bytes(),
        () = deletes.forwarder.drain().expired() => return Err(drain::refused().into()),
    };
    deletes.heard_of(named(&body)).await;
    Ok(deletes.forwarder.answered(head, Body::new(Held::new(Full::new(body), call))))
}

/// The sandboxes that an answer names; none where it cannot be read, which its client finds out too.
fn named(body: &Bytes) -> Vec<&str> {
    let Ok(Deleted { mut deleted, failed }) = serde_json::from_slice(body) else { return Vec::new() };
    deleted.extend(failed.into_iter().map(|unconfirmed| unconfirmed.id));
    deleted
}

fn broken(error: &BrokenOff) -> Problem {
    let detail = format!("the control plane's answer to the delete broke off: {error}");
    Problem::new(Code::UpstreamTimeout, detail)
}
