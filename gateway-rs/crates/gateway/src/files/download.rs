use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Uri};
use wire::Problem;
use wire::agent::{FileChunk, FileInfo, FileKind, ReadArchiveRequest, ReadFileRequest};

use super::chunks::Chunks;
use super::operation::{Files, Operation};
use super::{frames, info};
use crate::http::Failure;
use crate::http::Query;
use crate::http::fields;
use crate::leg::Way;
use crate::telemetry::{Direction, FileOperation, Open, Stream};

/// Data in one frame, unless a chunk is larger.
const MAX_FRAME_BYTES: usize = 256 << 10;

/// `GET /v1/sandboxes/{id}/file`: the bytes of a file, or of a part of it.
pub(crate) async fn read_file(
    State(files): State<Files>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "offset", "length", "user"])?;
        let (offset_bytes, length) = (query.number("offset")?.unwrap_or(0), query.number("length")?);
        if length == Some(0) {
            // To the sidecar 0 means "to the end".
            return Err(fields::invalid(
                "length",
                "length is 0, it must be 1 or more; leave it out for the rest",
            ));
        }
        let (path, user) = (query.path("path")?, query.user("user")?);
        let length_bytes = length.unwrap_or(0);
        Ok(ReadFileRequest { path, offset_bytes, length_bytes, user, ticket: Vec::new() })
    };
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::Read, check).await?;
    let (offset, length) = (request.offset_bytes, request.length_bytes);
    let leg = operation.leg(Way::Out);
    let request = operation.authorized(ReadFileRequest { ticket: leg.ticket(), ..request });
    let mut agent = operation.agent.clone();
    let chunks = operation.ask(agent.read_file(request)).await?;
    let download = Download::begin(operation, Chunks::new(chunks, leg), frames::wanted(&headers)).await?;
    Ok(download.answer("application/octet-stream", |info| known_length(info, offset, length)))
}

/// `GET /v1/sandboxes/{id}/archive`: a directory (or file) as one tar stream.
pub(crate) async fn read_archive(
    State(files): State<Files>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "user"])?;
        Ok(ReadArchiveRequest { path: query.path("path")?, user: query.user("user")?, ticket: Vec::new() })
    };
    let (mut operation, request) =
        Operation::enter(files, id, &headers, FileOperation::ReadArchive, check).await?;
    let leg = operation.leg(Way::Out);
    let request = operation.authorized(ReadArchiveRequest { ticket: leg.ticket(), ..request });
    let mut agent = operation.agent.clone();
    let chunks = operation.ask(agent.read_archive(request)).await?;
    let download = Download::begin(operation, Chunks::new(chunks, leg), frames::wanted(&headers)).await?;
    Ok(download.answer("application/x-tar", |_| None))
}

async fn next(operation: &Operation, chunks: &mut Chunks) -> Result<Option<FileChunk>, Problem> {
    let Operation { calls, route, .. } = operation;
    match calls.interruptible(route, chunks.next()).await {
        Ok(chunk) => Ok(chunk),
        Err(interrupted) => Err(interrupted.explain(calls, route).await),
    }
}

/// How many bytes will come, if that is known: files of the kernel (/proc) have contents although their size is 0.
fn known_length(info: &FileInfo, offset: u64, length: u64) -> Option<u64> {
    if info.kind() != FileKind::File || info.size_bytes == 0 {
        return None;
    }
    let rest = info.size_bytes.saturating_sub(offset);
    Some(if length == 0 { rest } else { rest.min(length) })
}

/// A file or an archive on its way to the client.
struct Download {
    operation: Operation,
    chunks: Chunks,
    framed: bool,
    /// The first chunk, awaited before the response begins: most failures are known by then.
    first: Option<FileChunk>,
    info: Option<FileInfo>,
    /// Pieces to send before the next chunk is requested.
    ready: std::collections::VecDeque<Bytes>,
    sent_bytes: u64,
    /// The Content-Length of the response: after its last byte the body is not polled any more.
    length: Option<u64>,
    sha256: Vec<u8>,
    over: bool,
    _open: Open,
}

impl Download {
    async fn begin(mut operation: Operation, mut chunks: Chunks, framed: bool) -> Result<Self, Problem> {
        let first = next(&operation, &mut chunks).await;
        let mut first = first.inspect_err(|problem| operation.failed(problem))?;
        let info = first.as_mut().and_then(|chunk| chunk.info.take());
        let open = Open::new(operation.calls.metrics(), Stream::Download);
        let mut ready = std::collections::VecDeque::with_capacity(2);
        if let Some(info) = info.as_ref().filter(|_| framed) {
            ready.push_back(frames::info(&info::json(info)));
        }
        let (sent_bytes, length, sha256, over) = (0, None, Vec::new(), false);
        Ok(Self {
            operation,
            chunks,
            framed,
            first,
            info,
            ready,
            sent_bytes,
            length,
            sha256,
            over,
            _open: open,
        })
    }

    fn answer(mut self, kind: &'static str, length: impl FnOnce(&FileInfo) -> Option<u64>) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(if self.framed { frames::TYPE } else { kind }));
        if let Some(info) = &self.info {
            if let Some(value) = info::header(info) {
                headers.insert(info::HEADER, value);
            }
            self.length = length(info).filter(|_| !self.framed);
        }
        if let Some(length) = self.length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let pieces = stream::unfold(self, |mut download| async { Some((download.next().await?, download)) });
        let mut response = Response::new(Body::from_stream(pieces));
        *response.headers_mut() = headers;
        response
    }

    /// Returns the next piece of the body. An error breaks the connection: without frames there is no other way to
    /// report it.
    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.over {
                return None;
            }
            match self.chunk().await {
                Ok(Some(chunk)) => self.take_in(chunk),
                Ok(None) => self.finish(),
                Err(problem) => {
                    self.over = true;
                    self.operation.failed_midway(&problem);
                    if !self.framed {
                        return Some(Err(problem));
                    }
                    self.ready.push_back(frames::problem(&problem, self.operation.request_id()));
                }
            }
        }
    }

    async fn chunk(&mut self) -> Result<Option<FileChunk>, Problem> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => next(&self.operation, &mut self.chunks).await,
        }
    }

    /// Queues a chunk with those that have already arrived; with frames they go into one.
    fn take_in(&mut self, chunk: FileChunk) {
        let (first, mut bytes) = (self.ready.len(), 0);
        let mut next = Some(chunk);
        while let Some(FileChunk { data, sha256, .. }) = next {
            if !sha256.is_empty() {
                self.sha256 = sha256;
            }
            if !data.is_empty() {
                bytes += data.len();
                self.ready.push_back(data);
            }
            next = self.chunks.ready(|next| bytes + next.data.len() <= MAX_FRAME_BYTES);
        }
        if bytes > 0 {
            self.count(bytes);
            if self.framed {
                self.ready.insert(first, frames::data_head(bytes));
            }
        }
    }

    fn count(&mut self, bytes: usize) {
        self.sent_bytes += u64::try_from(bytes).unwrap_or(0);
        self.operation.calls.metrics().streamed(Stream::Download, Direction::Out, bytes);
        if self.length == Some(self.sent_bytes) {
            self.operation.done();
        }
    }

    fn finish(&mut self) {
        self.over = true;
        self.operation.done();
        if self.framed {
            self.ready.push_back(frames::last(&self.sha256, self.sent_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_promised_only_where_it_is_known() {
        let mut info = FileInfo { size_bytes: 100, ..FileInfo::default() };
        assert_eq!(known_length(&info, 0, 0), None, "not a file");
        info.set_kind(FileKind::File);
        assert_eq!(known_length(&info, 0, 0), Some(100));
        assert_eq!(known_length(&info, 90, 50), Some(10));
        assert_eq!(known_length(&info, 10, 50), Some(50));
        assert_eq!(known_length(&info, 200, 50), Some(0));
        info.size_bytes = 0;
        assert_eq!(known_length(&info, 0, 0), None, "size 0, as for files in /proc");
    }
}
