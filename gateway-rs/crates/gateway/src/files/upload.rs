use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::request::Parts;
use http_body::Body as _;
use serde_json::json;
use tonic::Status;
use wire::agent::{WriteArchiveRequest, WriteFileRequest};
use wire::{Code, Problem};

use super::feed::{Feed, Held, small};
use super::info;
use super::operation::{Files, Operation};
use crate::http::Failure;
use crate::http::Query;
use crate::http::body::{Timed, discard};
use crate::http::{fields, json};
use crate::leg::Way;
use crate::telemetry::FileOperation;

/// A client that sends nothing for this long counts as gone (contract: files).
const SILENCE: Duration = Duration::from_secs(30);

type Id = Result<Path<String>, PathRejection>;

/// `PUT /v1/sandboxes/{id}/file`: writes a file; readers in the sandbox see the old one or the new one.
pub(crate) async fn write_file(
    State(files): State<Files>,
    id: Id,
    request: Request,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let mut body = Timed::new(body, SILENCE);
    let written = file(files.clone(), id, &head, &mut body).await;
    answered(&files, written, body)
}

/// `PUT /v1/sandboxes/{id}/archive`: unpacks a tar stream below a directory.
pub(crate) async fn write_archive(
    State(files): State<Files>,
    id: Id,
    request: Request,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let mut body = Timed::new(body, SILENCE);
    let written = archive(files.clone(), id, &head, &mut body).await;
    answered(&files, written, body)
}

/// Sends a refusal at once, so that a client that reads while it sends can stop. A client that does not read receives
/// the refusal only if it may send its body to the end, or nearly; a client without a valid token is not worth that.
fn answered(files: &Files, written: Result<Vec<u8>, Problem>, mut body: Timed) -> Result<Response, Failure> {
    if matches!(&written, Err(problem) if problem.code != Code::Unauthenticated) {
        files.spawn(async move { discard(&mut body).await });
    }
    Ok(json::response(written?))
}

async fn file(files: Files, id: Id, head: &Parts, body: &mut Timed) -> Result<Vec<u8>, Problem> {
    let announced = body.size_hint().exact();
    let check = || file_request(head, announced);
    let (mut operation, first) =
        Operation::enter(files, id, &head.headers, FileOperation::Write, check).await?;
    let leg = operation.leg(Way::In);
    let read = small(body, first.size_bytes, operation.calls.metrics()).await;
    if let Err(problem) = &read {
        operation.failed(problem);
    }
    let (data, eof) = read?;
    let ticket = if eof { Vec::new() } else { leg.ticket() };
    let (request, feed) = Feed::new(WriteFileRequest { data, eof, ticket, ..first }, leg, &operation);
    let mut agent = operation.agent.clone();
    let pump = async { if eof { Ok(feed.done()) } else { feed.pump(body).await } };
    let info = upload(&mut operation, agent.write_file(request), pump).await?;
    Ok(info::json(&info))
}

async fn archive(files: Files, id: Id, head: &Parts, body: &mut Timed) -> Result<Vec<u8>, Problem> {
    let check = || {
        let query = Query::read(head.uri.query(), &["path", "parents", "user", "in_place"])?;
        Ok(WriteArchiveRequest {
            path: query.path("path")?,
            user: query.user("user")?,
            parents: query.flag("parents", false)?,
            in_place: query.flag("in_place", false)?,
            ..WriteArchiveRequest::default()
        })
    };
    let (mut operation, first) =
        Operation::enter(files, id, &head.headers, FileOperation::WriteArchive, check).await?;
    let leg = operation.leg(Way::In);
    let first = WriteArchiveRequest { ticket: leg.ticket(), ..first };
    let (request, feed) = Feed::new(first, leg, &operation);
    let mut agent = operation.agent.clone();
    let written = upload(&mut operation, agent.write_archive(request), feed.pump(body)).await?;
    let (count, size_bytes, skipped) = (written.count, written.size_bytes, written.skipped);
    Ok(json!({"count": count, "size_bytes": size_bytes, "skipped": skipped}).to_string().into_bytes())
}

fn file_request(head: &Parts, announced: Option<u64>) -> Result<WriteFileRequest, Problem> {
    let names = [
        "path",
        "mode",
        "keep_mode",
        "user",
        "owner",
        "parents",
        "in_place",
        "modified_at_ms",
        "size",
        "sha256",
    ];
    let query = Query::read(head.uri.query(), &names)?;
    let size = query.number("size")?;
    if let (Some(size), Some(announced)) = (size, announced)
        && size != announced
    {
        let detail = format!("size is {size}, the body has {announced} bytes");
        return Err(fields::invalid("size", detail).with("reason", "size_mismatch"));
    }
    Ok(WriteFileRequest {
        path: query.path("path")?,
        mode: query.mode("mode")?,
        user: query.user("user")?,
        size_bytes: size.or(announced),
        sha256: query.digest("sha256")?,
        parents: query.flag("parents", true)?,
        owner: query.user("owner")?,
        keep_mode: query.flag("keep_mode", false)?,
        in_place: query.flag("in_place", false)?,
        modified_at_ms: query.time_ms("modified_at_ms")?,
        ..WriteFileRequest::default()
    })
}

async fn upload<T>(
    operation: &mut Operation,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    pump: impl Future<Output = Result<Held, Problem>>,
) -> Result<T, Problem> {
    let both = async {
        let mut call = std::pin::pin!(operation.calls.ask_without_timeout(&operation.route, call));
        let _held = tokio::select! {
            biased;
            answered = &mut call => return answered,
            pumped = pump => pumped?,
        };
        call.await
    };
    let written = both.await;
    match &written {
        Ok(_) => operation.done(),
        Err(problem) => operation.failed(problem),
    }
    written
}
