use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Uri};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::json;
use tonic::Streaming;
use wire::agent::{Change, WatchEvent, WatchRequest};
use wire::{Code, Problem};

use super::operation::{Files, Operation};
use super::{frames, info};
use crate::call::Interrupted;
use crate::http::Failure;
use crate::http::Query;
use crate::http::json::write;
use crate::telemetry::{Direction, FileOperation, Open, Stream};

/// Shows the client that nothing has changed, and the gateway that the client is still there.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// `GET /v1/sandboxes/{id}/watch`: changes below a path, one JSON object per line, until the client disconnects.
pub(crate) async fn watch(
    State(files): State<Files>,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let check = || {
        let query = Query::read(uri.query(), &["path", "recursive", "user"])?;
        let (path, user) = (query.path("path")?, query.user("user")?);
        Ok(WatchRequest { path, recursive: query.flag("recursive", false)?, user })
    };
    let (mut operation, request) = Operation::enter(files, id, &headers, FileOperation::Watch, check).await?;
    let (mut agent, request) = (operation.agent.clone(), operation.authorized(request));
    let mut events = operation.ask(agent.watch_files(request)).await?;
    let first = operation.calls.next(&operation.route, &mut events).await;
    let first = first.inspect_err(|problem| operation.failed(problem))?;
    let open = Open::new(operation.calls.metrics(), Stream::Watch);
    let framed = frames::wanted(&headers);
    let watch = Watch { operation, events, first, framed, over: false, _open: open };
    let pieces = stream::unfold(watch, |mut watch| async {
        Some((Ok::<_, std::convert::Infallible>(watch.piece().await?), watch))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let kind = if framed { frames::TYPE } else { "application/x-ndjson" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// Changes on their way to a client.
struct Watch {
    operation: Operation,
    events: Streaming<WatchEvent>,
    first: Option<WatchEvent>,
    framed: bool,
    over: bool,
    _open: Open,
}

impl Watch {
    async fn piece(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(self.event_line(&first));
        }
        let (calls, route) = (Arc::clone(&self.operation.calls), Arc::clone(&self.operation.route));
        let event = tokio::select! {
            event = calls.interruptible(&route, self.events.message()) => event,
            () = calls.drain().started() => Err(Interrupted::Expired),
            () = tokio::time::sleep(HEARTBEAT) => return Some(self.heartbeat()),
        };
        match event {
            Ok(Some(event)) => Some(self.event_line(&event)),
            Ok(None) => {
                let detail = "the sidecar ended the watch";
                Some(self.ended(&Problem::new(Code::StreamInterrupted, detail)))
            }
            Err(interrupted) => {
                let problem = interrupted.explain(&calls, &route).await;
                Some(self.ended(&problem))
            }
        }
    }

    fn event_line(&mut self, event: &WatchEvent) -> Bytes {
        // A watch that has begun counts as ok if its client leaves; a problem overwrites that (`ended`).
        self.operation.done();
        let mut json = Vec::new();
        write(&mut json, &EventJson(event));
        self.operation.calls.metrics().streamed(Stream::Watch, Direction::Out, json.len());
        self.line(json)
    }

    fn heartbeat(&self) -> Bytes {
        self.line(Vec::new())
    }

    fn ended(&mut self, problem: &Problem) -> Bytes {
        self.over = true;
        self.operation.failed_midway(problem);
        if self.framed {
            return frames::problem(problem, self.operation.request_id());
        }
        let problem =
            problem.to_json(self.operation.request_id(), crate::http::error::retry_after_ms(problem.code));
        self.line(json!({"problem": problem}).to_string().into_bytes())
    }

    fn line(&self, mut json: Vec<u8>) -> Bytes {
        if self.framed {
            return frames::data(&json);
        }
        json.push(b'\n');
        Bytes::from(json)
    }
}

struct EventJson<'a>(&'a WatchEvent);

impl Serialize for EventJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("change", change(self.0.change()))?;
        info::name(&mut map, "path", "path_base64", &self.0.path)?;
        if !self.0.from.is_empty() {
            info::name(&mut map, "from", "from_base64", &self.0.from)?;
        }
        map.end()
    }
}

fn change(change: Change) -> &'static str {
    match change {
        Change::Created => "created",
        Change::Written => "written",
        Change::Removed => "removed",
        Change::Moved => "moved",
        Change::Attributes => "attributes",
        // A kind that only a newer sidecar knows: as after an overflow, the client has to scan again.
        Change::Overflowed | Change::Unspecified => "overflowed",
        Change::Watching => "watching",
    }
}
