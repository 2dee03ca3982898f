use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, Uri};
use serde_json::json;
use wire::Problem;
use wire::agent::{FileInfo, MakeDirectoryRequest, MoveFileRequest, PathRequest, RemoveFileRequest};

use super::info;
use super::operation::{Files, Operation};
use crate::http::Failure;
use crate::http::Query;
use crate::http::json;
use crate::telemetry::FileOperation;

type Id = Result<Path<String>, PathRejection>;

/// `GET /v1/sandboxes/{id}/file/info`: what is at a path.
pub(crate) async fn info(
    State(files): State<Files>,
    id: Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "user", "follow"])?;
        let (path, user) = (query.path("path")?, query.user("user")?);
        Ok(PathRequest { path, user, follow: query.flag("follow", true)? })
    };
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::Info, check).await?;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let info = operation.ask(agent.stat_file(request)).await?;
    Ok(answered(&mut operation, &info))
}

/// `POST /v1/sandboxes/{id}/directory`: makes a directory.
pub(crate) async fn make_directory(
    State(files): State<Files>,
    id: Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "parents", "mode", "user"])?;
        let (path, user) = (query.path("path")?, query.user("user")?);
        let (parents, mode) = (query.flag("parents", false)?, query.mode("mode")?);
        Ok(MakeDirectoryRequest { path, user, parents, mode })
    };
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::Make, check).await?;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let info = operation.ask(agent.make_directory(request)).await?;
    Ok(answered(&mut operation, &info))
}

/// `POST /v1/sandboxes/{id}/file/move`: renames, also across file systems.
pub(crate) async fn move_file(
    State(files): State<Files>,
    id: Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || from_and_to(&uri);
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::Move, check).await?;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let info = operation.ask_without_timeout(agent.move_file(request)).await?;
    Ok(answered(&mut operation, &info))
}

/// `POST /v1/sandboxes/{id}/file/copy`: copies a file.
pub(crate) async fn copy(
    State(files): State<Files>,
    id: Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || from_and_to(&uri);
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::Copy, check).await?;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let info = operation.ask_without_timeout(agent.copy_file(request)).await?;
    Ok(answered(&mut operation, &info))
}

/// `DELETE /v1/sandboxes/{id}/file`: removes a file, or a directory with all that is in it.
pub(crate) async fn remove(
    State(files): State<Files>,
    id: Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "recursive", "missing_ok", "user"])?;
        let (path, user) = (query.path("path")?, query.user("user")?);
        let (recursive, missing_ok) = (query.flag("recursive", false)?, query.flag("missing_ok", false)?);
        Ok(RemoveFileRequest { path, recursive, user, missing_ok })
    };
    let (mut operation, request) =
        Operation::enter(files, id, &headers, FileOperation::Remove, check).await?;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let removed = operation.ask_without_timeout(agent.remove_file(request)).await?;
    operation.done();
    Ok(json::response(json!({"removed": removed.count}).to_string().into_bytes()))
}

fn from_and_to(uri: &Uri) -> Result<MoveFileRequest, Problem> {
    let query = Query::read(uri.query(), &["from", "to", "replace", "parents", "user"])?;
    Ok(MoveFileRequest {
        from: query.path("from")?,
        to: query.path("to")?,
        replace: query.flag("replace", false)?,
        user: query.user("user")?,
        parents: query.flag("parents", false)?,
    })
}

fn answered(operation: &mut Operation, info: &FileInfo) -> Response {
    operation.done();
    json::response(info::json(info))
}
