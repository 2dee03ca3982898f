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
use super::socket;
use crate::call::{self, authorized};
use crate::error::Failure;
use crate::exec::{endpoints, rules};
use crate::gateway::Gateway;
use crate::query::Query;
use crate::request_id;

/// Size limit of a WebSocket message: its head and its data.
const MAX_SOCKET_BYTES: usize = MAX_MESSAGE_BYTES + 9;

/// Offsets from here on are beyond all that a command writes: such a client writes input and wants no output.
const NO_OUTPUT: u64 = 1 << 62;

/// `GET /v1/sandboxes/{id}/execs/{exec_id}/attach`: a WebSocket to a command that runs or has run. A refusal is an
/// ordinary problem response; after the upgrade a problem is the last message.
pub(crate) async fn attach(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<(String, String)>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let call = gateway.enter()?;
    let (bearer, exec_id) = endpoints::authorize_exec(&gateway, path, &headers)?;
    let query = Query::read(uri.query(), &["stdout_offset", "stderr_offset"])?;
    let (stdout_offset, stderr_offset) =
        (query.number("stdout_offset")?.unwrap_or(0), query.number("stderr_offset")?.unwrap_or(0));
    let upgrade = upgrade.map_err(|rejection| {
        rules::invalid("upgrade", format!("attach is a WebSocket over HTTP/1.1: {}", rejection.body_text()))
    })?;
    let (route, place) = call::admit(&gateway, &gateway.streams, &bearer).await?;
    let mut agent = gateway.upstream.agent(&route);
    let request = AttachRequest { exec_id: exec_id.clone(), stdout_offset, stderr_offset };
    let events = call::ask(&gateway, &route, agent.attach(authorized(request, &bearer.header))).await?;
    gateway
        .metrics
        .attached([stdout_offset, stderr_offset].iter().any(|offset| (1..NO_OUTPUT).contains(offset)));
    let request_id = headers.get(request_id::HEADER).cloned().unwrap_or(HeaderValue::from_static(""));
    let relay = Relay {
        gateway,
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
