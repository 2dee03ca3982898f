use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream as Messages, StreamExt as _, stream};
use http::request::Parts;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use tonic::Status;
use wire::agent::{WriteArchiveRequest, WriteFileRequest};
use wire::{Code, Problem};

use super::info;
use super::operation::Operation;
use crate::body::{Timed, discard};
use crate::call;
use crate::error::Failure;
use crate::exec::{json, rules};
use crate::gateway::Gateway;
use crate::query::Query;
use crate::telemetry::{Direction, FileOperation, Metrics, Open, Stream};

/// A client that sends nothing for this long is taken for gone (contract: files).
const SILENCE: Duration = Duration::from_secs(30);

/// Data in one message: with its head what a sidecar takes as one frame (128 KiB).
const MESSAGE_BYTES: usize = (128 << 10) - 64;

type Id = Result<Path<String>, PathRejection>;

/// `PUT /v1/sandboxes/{id}/file`: writes a file; readers in the sandbox see the old one or the new one.
pub(crate) async fn write_file(
    State(gateway): State<Arc<Gateway>>,
    id: Id,
    request: Request,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let mut body = Timed::new(body, SILENCE);
    let written = file(Arc::clone(&gateway), id, &head, &mut body).await;
    answered(&gateway, written, body)
}

/// `PUT /v1/sandboxes/{id}/archive`: unpacks a tar stream below a directory.
pub(crate) async fn write_archive(
    State(gateway): State<Arc<Gateway>>,
    id: Id,
    request: Request,
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let mut body = Timed::new(body, SILENCE);
    let written = archive(Arc::clone(&gateway), id, &head, &mut body).await;
    answered(&gateway, written, body)
}

/// A refusal goes out at once, so that a client that looks stops sending. One that does not hears it only if it is let
/// finish, or nearly; one without a token is not worth that.
fn answered(
    gateway: &Gateway,
    written: Result<Vec<u8>, Problem>,
    mut body: Timed,
) -> Result<Response, Failure> {
    if matches!(&written, Err(problem) if problem.code != Code::Unauthenticated) {
        gateway.tunnels.spawn(async move { discard(&mut body).await });
    }
    Ok(json(written?))
}

async fn file(gateway: Arc<Gateway>, id: Id, head: &Parts, body: &mut Timed) -> Result<Vec<u8>, Problem> {
    let announced = body.size_hint().exact();
    let check = || file_request(head, announced);
    let (mut operation, first) =
        Operation::enter(gateway, id, &head.headers, FileOperation::Write, check).await?;
    let (request, feed) = feed(first, &operation);
    let mut agent = operation.agent.clone();
    let data = |data, eof| WriteFileRequest { data, eof, ..WriteFileRequest::default() };
    let info = upload(&mut operation, agent.write_file(request), pump(body, feed, data)).await?;
    Ok(info::json(&info))
}

async fn archive(gateway: Arc<Gateway>, id: Id, head: &Parts, body: &mut Timed) -> Result<Vec<u8>, Problem> {
    let check = || {
        let query = Query::read(head.uri.query(), &["path", "parents", "user"])?;
        let (path, user) = (query.path("path")?, query.user("user")?);
        Ok(WriteArchiveRequest { path, user, parents: query.flag("parents", false)?, ..Default::default() })
    };
    let (mut operation, first) =
        Operation::enter(gateway, id, &head.headers, FileOperation::WriteArchive, check).await?;
    let (request, feed) = feed(first, &operation);
    let mut agent = operation.agent.clone();
    let data = |data, eof| WriteArchiveRequest { data, eof, ..WriteArchiveRequest::default() };
    let written = upload(&mut operation, agent.write_archive(request), pump(body, feed, data)).await?;
    let (count, size_bytes, skipped) = (written.count, written.size_bytes, written.skipped);
    Ok(json!({"count": count, "size_bytes": size_bytes, "skipped": skipped}).to_string().into_bytes())
}

fn file_request(head: &Parts, announced: Option<u64>) -> Result<WriteFileRequest, Problem> {
    let names = ["path", "mode", "user", "owner", "parents", "size", "sha256"];
    let query = Query::read(head.uri.query(), &names)?;
    let size = query.number("size")?;
    if let (Some(size), Some(announced)) = (size, announced)
        && size != announced
    {
        let detail = format!("size is {size}, the body has {announced} bytes");
        return Err(rules::invalid("size", detail).with("reason", "size_mismatch"));
    }
    Ok(WriteFileRequest {
        path: query.path("path")?,
        mode: query.mode("mode")?,
        user: query.user("user")?,
        size_bytes: size.or(announced),
        sha256: query.digest("sha256")?,
        parents: query.flag("parents", true)?,
        owner: query.user("owner")?,
        ..WriteFileRequest::default()
    })
}

/// Where the messages of an upload go in.
struct Feed<M> {
    // In this order: dropped in the middle, the stream breaks off before its messages end.
    guard: DropGuard,
    messages: mpsc::Sender<M>,
    metrics: Arc<Metrics>,
    open: Open,
}

impl<M> Feed<M> {
    async fn send(&self, message: M) {
        if self.messages.send(message).await.is_err() {
            // The sidecar has ended the call; its answer says why.
            std::future::pending::<()>().await;
        }
    }
}

fn feed<M: Send + 'static>(
    first: M,
    operation: &Operation,
) -> (tonic::Request<impl Messages<Item = M> + Send + 'static>, Feed<M>) {
    let (sender, receiver) = mpsc::channel(1);
    let rest = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let messages = stream::iter([first]).chain(rest);
    let (request, guard) = call::streamed(messages, &operation.bearer.header, operation.place());
    let metrics = Arc::clone(&operation.gateway.metrics);
    let open = Open::new(&metrics, Stream::Upload);
    (request, Feed { guard, messages: sender, metrics, open })
}

/// Moves a client's body into the messages, as fast as the sidecar takes them, and in full ones: a message costs the
/// sandbox more than its bytes, and nobody sees a file before its end. Gives the guard of the call, which must live until
/// its answer.
async fn pump<M>(
    body: &mut Timed,
    feed: Feed<M>,
    message: impl Fn(Bytes, bool) -> M,
) -> Result<(DropGuard, Open), Problem> {
    let mut gathered = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|broken| {
            Problem::new(Code::InvalidArgument, format!("the body could not be read: {broken}"))
        })?;
        let Ok(mut data) = frame.into_data() else { continue };
        feed.metrics.streamed(Stream::Upload, Direction::In, data.len());
        while !data.is_empty() {
            if gathered.is_empty() {
                gathered.reserve(MESSAGE_BYTES);
            }
            gathered.extend_from_slice(&data.split_to(data.len().min(MESSAGE_BYTES - gathered.len())));
            if gathered.len() == MESSAGE_BYTES {
                feed.send(message(gathered.split().freeze(), false)).await;
            }
        }
    }
    feed.send(message(gathered.freeze(), true)).await;
    let Feed { guard, messages, open, .. } = feed;
    drop(messages);
    Ok((guard, open))
}

async fn upload<T>(
    operation: &mut Operation,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    pump: impl Future<Output = Result<(DropGuard, Open), Problem>>,
) -> Result<T, Problem> {
    let both = async {
        let mut call = std::pin::pin!(call::patiently(&operation.gateway, &operation.route, call));
        let _guard = tokio::select! {
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
