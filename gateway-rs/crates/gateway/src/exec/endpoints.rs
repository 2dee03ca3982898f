use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::HeaderMap;
use resolve::Found;
use token::Verifier;
use tokio::time::Instant;
use wire::Problem;

use super::call::{Execs, Outcome};
use super::{answer, call, request, rules};
use crate::auth::{self, Bearer};
use crate::http::body::Read;
use crate::http::{Failure, fields, json, request_id};
use crate::telemetry::Ended;

/// `POST /v1/sandboxes/{id}/exec`: runs a command and answers with its result.
///
/// The checks run in this order, so that a bad request costs only its caller: token, end of the sandbox, body, fields,
/// admission.
pub(crate) async fn exec(
    State(execs): State<Execs>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let _call = execs.calls.enter()?;
    let checking = Instant::now();
    let bearer = auth::check_path(execs.calls.verifier(), request.headers(), id)?;
    let checked = checking.elapsed();
    let Read { bytes, budget } = body(&execs, &bearer, request).await?;
    let decoding = Instant::now();
    let decoded = request::decode(&bytes, request_id::unique)?;
    drop(bytes);
    let sandbox_id = bearer.claims.sandbox_id.clone();
    let Outcome { result, queue, sidecar } = call::exec(&execs, bearer, decoded, budget).await?;
    let mut answer = json::response(answer::encode(&result, queue));
    execs.calls.tell_draining(&sandbox_id, &mut answer);
    let output_bytes =
        [&result.stdout, &result.stderr].into_iter().flatten().map(|output| output.data.len()).sum();
    execs.calls.metrics().exec_ended(&Ended {
        end: result.end(),
        queue,
        spawn: Duration::from_micros(result.spawn_us),
        run: Duration::from_micros(result.run_us),
        sidecar,
        // The time that the client takes to send the body is not the gateway's latency.
        total: checked + decoding.elapsed(),
        output_bytes,
    });
    Ok(answer)
}

/// `POST /v1/sandboxes/{id}/execs`: starts a command and answers as soon as it runs.
pub(crate) async fn start(
    State(execs): State<Execs>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let _call = execs.calls.enter()?;
    let bearer = auth::check_path(execs.calls.verifier(), request.headers(), id)?;
    let Read { bytes, budget } = body(&execs, &bearer, request).await?;
    let decoded = request::decode_start(&bytes, request_id::unique)?;
    drop(bytes);
    let started = call::start(&execs, &bearer, decoded, budget).await?;
    let mut answer = json::response(answer::encode_started(&started));
    execs.calls.tell_draining(&bearer.claims.sandbox_id, &mut answer);
    Ok(answer)
}

/// `POST /v1/sandboxes/{id}/execs/{exec_id}/signal`: sends a signal to the command, or to all its processes.
pub(crate) async fn signal(
    State(execs): State<Execs>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, Failure> {
    let _call = execs.calls.enter()?;
    let (bearer, exec_id) = authorize_exec(execs.calls.verifier(), path, request.headers())?;
    let Read { bytes, .. } = body(&execs, &bearer, request).await?;
    call::signal(&execs, &bearer, request::decode_signal(&bytes, exec_id)?).await?;
    Ok(json::response(b"{}".to_vec()))
}

/// `GET /v1/sandboxes/{id}/execs`: running and recorded execs, newest first.
pub(crate) async fn list(
    State(execs): State<Execs>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = execs.calls.enter()?;
    let bearer = auth::check_path(execs.calls.verifier(), &headers, id)?;
    Ok(json::response(answer::encode_list(&call::list(&execs, &bearer).await?)))
}

/// `DELETE /v1/sandboxes/{id}/execs/{exec_id}`: kills an exec with all its processes; idempotent.
pub(crate) async fn cancel(
    State(execs): State<Execs>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = execs.calls.enter()?;
    let (bearer, exec_id) = authorize_exec(execs.calls.verifier(), path, &headers)?;
    let result = call::cancel(&execs, &bearer, exec_id).await?;
    Ok(json::response(answer::encode(&result, Duration::ZERO)))
}

/// `DELETE /v1/sandboxes/{id}/execs`: kills every process of the sandbox; idempotent.
pub(crate) async fn cancel_all(
    State(execs): State<Execs>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = execs.calls.enter()?;
    let bearer = auth::check_path(execs.calls.verifier(), &headers, id)?;
    Ok(json::response(answer::encode_cancelled(&call::cancel_all(&execs, &bearer).await?)))
}

/// Reads the body, unless the sandbox is known to have ended: then the client need not send it.
async fn body(execs: &Execs, bearer: &Bearer, request: Request) -> Result<Read, Problem> {
    if let Found::Ended(tombstone) = execs.calls.resolver().directory().find(&bearer.claims.sandbox_id) {
        return Err(tombstone.problem());
    }
    execs.bodies.read(request.into_body()).await
}

/// Checks the token, and the `exec_id` of the path.
pub(crate) fn authorize_exec(
    verifier: &Verifier,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: &HeaderMap,
) -> Result<(Bearer, String), Problem> {
    let Path((id, exec_id)) = path.map_err(fields::unreadable_path)?;
    let bearer = auth::check(verifier, headers, &id)?;
    rules::check_exec_id(&exec_id)?;
    Ok((bearer, exec_id))
}
