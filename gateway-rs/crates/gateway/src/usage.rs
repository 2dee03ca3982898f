//! `GET /v1/sandboxes/{id}/usage`: the resources that a sandbox uses.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use wire::agent::usage_report::Counter;
use wire::agent::{UsageReport, UsageRequest};

use crate::auth;
use crate::call::{Calls, authorized};
use crate::http::Failure;
use crate::http::json::{self, ms, write};
use crate::node_usage::NodeUsage;

/// What calls for usage share.
#[derive(Debug, Clone)]
pub(crate) struct UsageCalls {
    calls: Arc<Calls>,
    nodes: Arc<NodeUsage>,
}

impl UsageCalls {
    pub(crate) fn new(calls: Arc<Calls>, nodes: Arc<NodeUsage>) -> Self {
        Self { calls, nodes }
    }
}

/// A limit is `null` where there is none, and what is not known is too: of the disk in use, where only the node's is known.
#[derive(Serialize)]
struct Usage {
    cpu_ms: f64,
    cpu_counted_by: &'static str,
    memory_bytes: u64,
    memory_files_bytes: u64,
    memory_limit_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    disk_limit_bytes: Option<u64>,
    processes: u32,
    processes_limit: Option<u32>,
}

impl From<UsageReport> for Usage {
    fn from(report: UsageReport) -> Self {
        Self {
            cpu_ms: ms(Duration::from_micros(report.cpu_us)),
            cpu_counted_by: if report.counter() == Counter::Node { "node" } else { "sandbox" },
            memory_bytes: report.memory_bytes,
            memory_files_bytes: report.memory_files_bytes,
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
    State(UsageCalls { calls, nodes }): State<UsageCalls>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let _call = calls.enter()?;
    let bearer = auth::check_path(calls.verifier(), &headers, id)?;
    let route = calls.resolve(&bearer.claims.sandbox_id).await?;
    let mut agent = calls.agent(&route);
    let mut report = calls.ask(&route, agent.usage(authorized(UsageRequest {}, &bearer.header))).await?;
    // gVisor's own count has in it what waited for a processor.
    if report.counter() != Counter::Node
        && let Some(cpu_us) = nodes.cpu_us(&route.sandbox_id).await
    {
        report = UsageReport { cpu_us, counter: Counter::Node.into(), ..report };
    }
    let mut body = Vec::new();
    write(&mut body, &Usage::from(report));
    Ok(json::response(body))
}
