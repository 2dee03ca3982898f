use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Uri};
use tonic::Streaming;
use wire::Problem;
use wire::agent::{FileInfo, ListDirectoryRequest};

use super::info::Info;
use super::operation::{Files, Operation};
use crate::http::Failure;
use crate::http::Query;
use crate::http::json::write;
use crate::telemetry::{Direction, FileOperation, Open, Stream};

/// Entries in one answer: the default and the maximum.
const LIMIT: u32 = 10_000;
const MAX_LIMIT: u64 = 100_000;

/// Entries are sent in pieces of about this size.
const PIECE_BYTES: usize = 32 << 10;

/// `GET /v1/sandboxes/{id}/directory`: its entries, of one level or of all.
pub(crate) async fn list(
    State(files): State<Files>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "recursive", "limit", "user"])?;
        let (path, user) = (query.path("path")?, query.user("user")?);
        let limit = query.count("limit", LIMIT, 1..=MAX_LIMIT)?;
        // One entry more than the limit shows that there are more.
        Ok(ListDirectoryRequest { path, recursive: query.flag("recursive", false)?, limit: limit + 1, user })
    };
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::List, check).await?;
    let limit = request.limit - 1;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let mut entries = operation.ask(agent.list_directory(request)).await?;
    let first = operation.calls.next(&operation.route, &mut entries).await;
    let first = first.inspect_err(|problem| operation.failed(problem))?;
    let open = Open::new(operation.calls.metrics(), Stream::Download);
    let listing =
        Listing { operation, entries, next: first, left: limit, begun: false, over: false, _open: open };
    let pieces = stream::unfold(listing, |mut listing| async { Some((listing.piece().await?, listing)) });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A listing on its way to the client.
struct Listing {
    operation: Operation,
    entries: Streaming<FileInfo>,
    next: Option<FileInfo>,
    left: u32,
    begun: bool,
    over: bool,
    _open: Open,
}

impl Listing {
    /// Returns the next piece of the body. An error breaks the connection: half a list must not look like a whole one.
    async fn piece(&mut self) -> Option<Result<Bytes, Problem>> {
        if self.over {
            return None;
        }
        let mut piece = Vec::with_capacity(PIECE_BYTES + 1024);
        while piece.len() < PIECE_BYTES && !self.over {
            if let Err(problem) = self.append(&mut piece).await {
                self.over = true;
                self.operation.failed_midway(&problem);
                return Some(Err(problem));
            }
        }
        self.operation.calls.metrics().streamed(Stream::Download, Direction::Out, piece.len());
        Some(Ok(Bytes::from(piece)))
    }

    async fn append(&mut self, piece: &mut Vec<u8>) -> Result<(), Problem> {
        match self.next.take() {
            Some(entry) if self.left > 0 => {
                piece.extend_from_slice(if self.begun { b"," } else { b"{\"entries\":[" });
                write(piece, &Info(&entry));
                (self.begun, self.left) = (true, self.left - 1);
                self.next = self.operation.calls.next(&self.operation.route, &mut self.entries).await?;
            }
            rest => {
                if !self.begun {
                    piece.extend_from_slice(b"{\"entries\":[");
                }
                piece.extend_from_slice(format!("],\"truncated\":{}}}", rest.is_some()).as_bytes());
                self.over = true;
                self.operation.done();
            }
        }
        Ok(())
    }
}
