use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use wire::{Code, Problem};

use super::bind::Unbound;
use crate::forward::{Forwarder, IDEMPOTENCY_KEY};

/// What is to become of a create whose sandbox could not be bound.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The sandbox has ended, and is replaced when the create is repeated.
    Replace,
    /// The sandbox has ended, for this reason.
    Ended(Problem),
    /// The sandbox lives on; the create fails for this reason.
    Failed(Problem),
}

/// Has the control plane decide about a sandbox that could not be bound, as the owner that the create came from.
/// Safe to repeat.
///
/// # Errors
/// The control plane does not answer.
pub(super) async fn report(
    forwarder: &Forwarder,
    create: &Parts,
    unbound: &Unbound,
) -> Result<Verdict, Problem> {
    let Unbound { id, why } = unbound;
    tracing::warn!(
        sandbox_id = id,
        code = why.code.name(),
        detail = why.detail,
        "settings not bound; the control plane decides about the sandbox"
    );
    let body =
        json!({"code": why.code.name(), "detail": cut(&why.detail), "details": why.details}).to_string();
    let mut head = create.clone();
    head.method = Method::POST;
    head.uri = format!("http://controlplane/v1/sandboxes/{id}/unbound").parse().map_err(|e| {
        Problem::new(Code::Internal, format!("the control plane answered with the id {id:?}: {e}"))
    })?;
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    // With a key it is sent again where a replica dies under it.
    head.headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("unbound"));
    let response = forwarder.send(head, body.into()).await?;
    let status = response.status();
    if status == StatusCode::NO_CONTENT {
        return Ok(Verdict::Replace);
    }
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    Ok(verdict(&body.unwrap_or_default(), unbound))
}

/// The verdict in a problem.
fn verdict(body: &[u8], unbound: &Unbound) -> Verdict {
    let Some(problem) = read(body) else { return Verdict::Failed(unbound.why.clone()) };
    let ended = ["ended", "ended_at_ms"].iter().any(|name| problem.details.contains_key(*name));
    if ended { Verdict::Ended(problem) } else { Verdict::Failed(problem) }
}

/// Reads a problem of the control plane.
fn read(body: &[u8]) -> Option<Problem> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let code = Code::from_name(body["code"].as_str()?)?;
    let mut problem = Problem::new(code, body["detail"].as_str().unwrap_or_default());
    for (name, value) in body["details"].as_object().into_iter().flatten() {
        problem = problem.with(name, value.as_str().unwrap_or_default());
    }
    Some(problem)
}

/// The control plane takes 4096 characters.
fn cut(detail: &str) -> String {
    detail.chars().take(4096).collect()
}
