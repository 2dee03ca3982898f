//! Deletes of one sandbox: forwarded, and answered once this gateway has heard of the end, so that no call that its
//! client sends after the answer reaches the sandbox.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use resolve::{Directory, Found};

use crate::forward::{self, Forwarder};
use crate::http::Failure;

/// How long an answer is held back for the end. The route feed brings it within milliseconds; a feed that is lost
/// reconnects and brings it then, and the end is on record whatever the feed does.
const END_WAIT: Duration = Duration::from_millis(500);

/// Forwards deletes.
#[derive(Debug, Clone)]
pub(crate) struct Deletes {
    forwarder: Forwarder,
    directory: Arc<Directory>,
}

impl Deletes {
    pub(crate) fn new(forwarder: Forwarder, directory: Arc<Directory>) -> Self {
        Self { forwarder, directory }
    }
}

/// Deletes one sandbox.
pub(crate) async fn delete(
    State(deletes): State<Deletes>,
    Path(sandbox_id): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let answer = forward::forward(State(deletes.forwarder), request).await?;
    if let (true, Found::Live(route)) = (answer.status().is_success(), deletes.directory.find(&sandbox_id)) {
        let _ = tokio::time::timeout(END_WAIT, route.over()).await;
    }
    Ok(answer)
}
