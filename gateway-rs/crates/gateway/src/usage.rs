//! `GET /v1/sandboxes/{id}/usage`: the resources that a sandbox uses.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use wire::agent::{UsageReport, UsageRequest};

use crate::auth;
use crate::call::{Calls, authorized};
use crate::http::Failure;
use crate::http::json::{self, ms, write};

/// What calls for usage share.
#[derive(Debug, Clone)]
pub(crate) struct UsageCalls {
    calls: Arc<Calls>,
}

impl UsageCalls {
    pub(crate) fn new(calls: Arc<Calls>) -> Self {
        Self { calls }
    }
}

/// A limit is `null` where there is none or where it is not known.
#[derive(Serialize)]
struct Usage {
    cpu_ms: f64,
    memory_bytes: u64,
    memory_limit_bytes: Option<u64>,
    disk_bytes: u64,
    disk_limit_bytes: Option<u64>,
    processes: u32,
    processes_limit: Option<u32>,
}

impl From<UsageReport> for Usage {
    fn from(report: UsageReport) -> Self {
        Self {
            cpu_ms: ms(std::time::Duration::from_micros(report.cpu_us)),
            memory_bytes: report.memory_bytes,
            memory_limit_bytes: Some(report.memory_limit_bytes).filter(|limit| *limit != 0),
            disk_bytes: report.disk_bytes,
            disk_limit_bytes: Some(report.disk_limit_bytes).filter(|limit| *limit != 0),
            processes: report.processes,
            processes_limit: Some(report.processes_limit).filter(|limit| *limit != 0),
        }
    }
}

/// Takes no permit: it must work while all are taken.
pub(crate) async fn usage(
    State(UsageCalls { calls }): State<UsageCalls>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = calls.enter()?;
    let bearer = auth::check_path(calls.verifier(), &headers, id)?;
    let route = calls.resolve(&bearer.claims.sandbox_id).await?;
    let mut agent = calls.agent(&route);
    let report = calls.ask(&route, agent.usage(authorized(UsageRequest {}, &bearer.header))).await?;
    let mut body = Vec::new();
    write(&mut body, &Usage::from(report));
    Ok(json::response(body))
}
