use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Uri};
use wire::agent::AttachRequest;

use super::message::MAX_MESSAGE_BYTES;
use super::relay::Relay;
use crate::admission::Admission;
use crate::call::{Calls, authorized};
use crate::exec::endpoints;
use crate::http::{Failure, Query, fields, request_id, socket};

/// Size limit of a WebSocket message: its head and its data.
const MAX_SOCKET_BYTES: usize = MAX_MESSAGE_BYTES + 9;

/// Offsets from here on are beyond all that a command writes: such a client writes input and wants no output.
const NO_OUTPUT: u64 = 1 << 62;

/// What attached clients share.
#[derive(Debug, Clone)]
pub(crate) struct Attaches {
    calls: Arc<Calls>,
    gate: Arc<Admission>,
}

impl Attaches {
    /// Attached clients that take their permits from `gate`.
    pub(crate) fn new(calls: Arc<Calls>, gate: Arc<Admission>) -> Self {
        Self { calls, gate }
    }
}

/// `GET /v1/sandboxes/{id}/execs/{exec_id}/attach`: a WebSocket to a command that runs or has run. A refusal is an
/// ordinary problem response; after the upgrade a problem is the last message.
pub(crate) async fn attach(
    State(Attaches { calls, gate }): State<Attaches>,
    path: Result<Path<(String, String)>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let call = calls.enter()?;
    let (bearer, exec_id) = endpoints::authorize_exec(calls.verifier(), path, &headers)?;
    let query = Query::read(uri.query(), &["stdout_offset", "stderr_offset"])?;
    let (stdout_offset, stderr_offset) =
        (query.number("stdout_offset")?.unwrap_or(0), query.number("stderr_offset")?.unwrap_or(0));
    let upgrade = upgrade.map_err(|rejection| {
        fields::invalid("upgrade", format!("attach is a WebSocket over HTTP/1.1: {}", rejection.body_text()))
    })?;
    let (route, place) = calls.admit(&gate, &bearer).await?;
    let mut agent = calls.agent(&route);
    let request = AttachRequest { exec_id: exec_id.clone(), stdout_offset, stderr_offset };
    let events = calls.ask(&route, agent.attach(authorized(request, &bearer.header))).await?;
    calls
        .metrics()
        .attached([stdout_offset, stderr_offset].iter().any(|offset| (1..NO_OUTPUT).contains(offset)));
    let request_id = headers.get(request_id::HEADER).cloned().unwrap_or(HeaderValue::from_static(""));
    let relay = Relay {
        calls,
        bearer,
        route,
        agent,
        exec_id,
        events: events.into(),
        request_id,
        _call: call,
        _place: place,
    };
    Ok(socket::bounded(upgrade, MAX_SOCKET_BYTES).on_upgrade(|socket| relay.run(socket)))
}
