//! All routes on one screen.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, delete, get, post};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use wire::{Code, Fault, Problem};

use crate::error::{self, Failure};
use crate::exec::endpoints as exec;
use crate::forward::forward;
use crate::gateway::Gateway;
use crate::request_id;

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/sandboxes/{id}/exec", post(exec::exec).fallback(wrong_method))
        .route("/v1/sandboxes/{id}/execs", get(exec::list).fallback(wrong_method))
        .route("/v1/sandboxes/{id}/execs/{exec_id}", delete(exec::cancel).fallback(wrong_method))
        .route("/v1/{*rest}", any(forward))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(unknown_path)
        .with_state(gateway)
}

/// One request from head to answer: its id first, the one place for problems last.
pub(crate) async fn answer(gateway: &Gateway, router: Router, mut request: Request) -> Response {
    let request_id = request_id::ensure(request.headers_mut());
    let line = (request.method().clone(), request.uri().path().to_owned());
    let mut response =
        tower::ServiceExt::oneshot(router, request).await.unwrap_or_else(|never| match never {});
    if let Some(problem) = error::carried(&mut response) {
        gateway.metrics.problem(problem.code);
        log(&line, &request_id, &problem);
        response = error::render(&problem, &request_id);
    }
    response.headers_mut().insert(request_id::HEADER, request_id);
    response
}

/// One line a refused request; louder when it is not the caller's doing.
fn log((method, path): &(Method, String), request_id: &HeaderValue, problem: &Problem) {
    let (code, detail) = (problem.code.name(), &problem.detail);
    match problem.code.fault() {
        Fault::Caller | Fault::Workload => {
            tracing::info!(%method, path, ?request_id, code, detail, "refused")
        }
        Fault::Capacity | Fault::Platform => {
            tracing::warn!(%method, path, ?request_id, code, detail, "refused")
        }
    }
}

/// 200 when new calls may come here, else 503 and why.
async fn ready(State(gateway): State<Arc<Gateway>>) -> (StatusCode, String) {
    match gateway.not_ready() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> ([(http::HeaderName, &'static str); 1], String) {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], gateway.metrics.render(&gateway.gauges()))
}

async fn wrong_method(request: Request) -> Failure {
    let detail = format!("{} is not offered at {}", request.method(), request.uri().path());
    Problem::new(Code::InvalidArgument, detail).with("field", "method").into()
}

async fn unknown_path(request: Request) -> Failure {
    let detail = format!("there is nothing at {}; the API is under /v1", request.uri().path());
    Problem::new(Code::InvalidArgument, detail).with("field", "path").into()
}
