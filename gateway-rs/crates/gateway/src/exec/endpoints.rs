use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use resolve::Found;
use tokio::time::Instant;
use wire::Problem;
use wire::agent::SignalRequest;

use super::call::Outcome;
use super::request::Signal;
use super::{answer, call, request, rules};
use crate::auth::{self, Bearer};
use crate::body::Read;
use crate::error::Failure;
use crate::gateway::Gateway;
use crate::request_id;
use crate::telemetry::Ended;

/// `POST /v1/sandboxes/{id}/exec`: runs a command and answers with its result.
///
/// The checks run in this order, so that a bad request costs only its caller: token, end of the sandbox, body, fields,
/// admission.
pub(crate) async fn exec(
    State(gateway): State<Arc<Gateway>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let _call = gateway.enter()?;
    let checking = Instant::now();
    let bearer = authorize(&gateway, id, request.headers())?;
    let checked = checking.elapsed();
    let Read { bytes, budget } = body(&gateway, &bearer, request).await?;
    let decoding = Instant::now();
    let decoded = request::decode(&bytes, request_id::unique)?;
    drop(bytes);
    let Outcome { result, queue, sidecar } = call::exec(&gateway, bearer, decoded, budget).await?;
    let answer = json(answer::encode(&result, queue));
    gateway.metrics.exec_ended(&Ended {
        end: result.end(),
        queue,
        spawn: Duration::from_micros(result.spawn_us),
        run: Duration::from_micros(result.run_us),
        sidecar,
        // The time that the client takes to send the body is not the gateway's latency.
        total: checked + decoding.elapsed(),
    });
    Ok(answer)
}

/// `POST /v1/sandboxes/{id}/execs`: starts a command and answers as soon as it runs.
pub(crate) async fn start(
    State(gateway): State<Arc<Gateway>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let _call = gateway.enter()?;
    let bearer = authorize(&gateway, id, request.headers())?;
    let Read { bytes, budget } = body(&gateway, &bearer, request).await?;
    let decoded = request::decode_start(&bytes, request_id::unique)?;
    drop(bytes);
    let started = call::start(&gateway, &bearer, decoded, budget).await?;
    Ok(json(answer::encode_started(&started)))
}

/// `POST /v1/sandboxes/{id}/execs/{exec_id}/signal`: sends a signal to the command, or to all its processes.
pub(crate) async fn signal(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let _call = gateway.enter()?;
    let (bearer, exec_id) = authorize_exec(&gateway, path, request.headers())?;
    let Read { bytes, .. } = body(&gateway, &bearer, request).await?;
    let Signal { signal, tree } = request::decode_signal(&bytes)?;
    call::signal(&gateway, &bearer, SignalRequest { exec_id, signal, tree }).await?;
    Ok(json(b"{}".to_vec()))
}

/// `GET /v1/sandboxes/{id}/execs`: running and recorded execs, newest first.
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = gateway.enter()?;
    let bearer = authorize(&gateway, id, &headers)?;
    Ok(json(answer::encode_list(&call::list(&gateway, &bearer).await?)))
}

/// `DELETE /v1/sandboxes/{id}/execs/{exec_id}`: kills an exec with all its processes; idempotent.
pub(crate) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = gateway.enter()?;
    let (bearer, exec_id) = authorize_exec(&gateway, path, &headers)?;
    let result = call::cancel(&gateway, &bearer, exec_id).await?;
    Ok(json(answer::encode(&result, Duration::ZERO)))
}

/// Reads the body, unless the sandbox is known to have ended: then the client need not send it.
async fn body(gateway: &Gateway, bearer: &Bearer, request: Request) -> Result<Read, Problem> {
    if let Found::Ended(tombstone) = gateway.resolver.directory().find(&bearer.claims.sandbox_id) {
        return Err(tombstone.problem());
    }
    gateway.bodies.read(request.into_body()).await
}

pub(crate) fn authorize_exec(
    gateway: &Gateway,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: &HeaderMap,
) -> Result<(Bearer, String), Problem> {
    let Path((id, exec_id)) = path.map_err(unreadable)?;
    let bearer = auth::check(&gateway.settings.verifier, headers, &id)?;
    rules::check_exec_id(&exec_id)?;
    Ok((bearer, exec_id))
}

pub(crate) fn authorize(
    gateway: &Gateway,
    id: Result<Path<String>, PathRejection>,
    headers: &HeaderMap,
) -> Result<Bearer, Problem> {
    let Path(id) = id.map_err(unreadable)?;
    auth::check(&gateway.settings.verifier, headers, &id)
}

pub(crate) fn unreadable(rejection: PathRejection) -> Problem {
    rules::invalid("path", format!("the path cannot be read: {rejection}"))
}

pub(crate) fn json(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
