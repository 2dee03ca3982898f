//! All routes in one place.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef as _, Request, State};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, delete, get, post};
use futures_util::FutureExt as _;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use wire::{Code, Fault, Problem};

use crate::deletes;
use crate::exec::endpoints as exec;
use crate::files;
use crate::forward::forward;
use crate::gateway::Gateway;
use crate::http::{Failure, error, request_id};
use crate::late_settings;
use crate::ports::{Ports, endpoints as ports};
use crate::processes;
use crate::telemetry::Metrics;
use crate::usage::usage;

pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/sandboxes/{id}/exec", post(exec::exec))
        .route("/v1/sandboxes/{id}/execs", get(exec::list).post(exec::start).delete(exec::cancel_all))
        .route("/v1/sandboxes/{id}/execs/{exec_id}", delete(exec::cancel))
        .route("/v1/sandboxes/{id}/execs/{exec_id}/attach", get(processes::attach))
        .route("/v1/sandboxes/{id}/execs/{exec_id}/signal", post(exec::signal))
        .route("/v1/sandboxes/{id}/file", get(files::read_file).put(files::write_file).delete(files::remove))
        .route("/v1/sandboxes/{id}/file/info", get(files::stat))
        .route("/v1/sandboxes/{id}/file/move", post(files::move_file))
        .route("/v1/sandboxes/{id}/file/copy", post(files::copy))
        .route("/v1/sandboxes/{id}/directory", get(files::list).post(files::make_directory))
        .route("/v1/sandboxes/{id}/archive", get(files::read_archive).put(files::write_archive))
        .route("/v1/sandboxes/{id}/watch", get(files::watch))
        .route("/v1/sandboxes/{id}/ports/{port}", get(ports::state).post(forward).delete(forward))
        .route("/v1/sandboxes/{id}/ports/{port}/tcp", get(ports::tcp))
        .route("/v1/sandboxes/{id}/ports/{port}/udp", get(ports::udp))
        .route("/v1/sandboxes/{id}/ports/{port}/http", any(ports::http))
        .route("/v1/sandboxes/{id}/ports/{port}/http/", any(ports::http))
        .route("/v1/sandboxes/{id}/ports/{port}/http/{*rest}", any(ports::http))
        .route("/v1/sandboxes/{id}/usage", get(usage))
        .route("/v1/sandboxes", any(forward).post(late_settings::create).delete(deletes::delete_many))
        .route("/v1/sandboxes/{id}", any(forward).delete(deletes::delete))
        .route("/v1/sandboxes/{id}/unbound", any(unknown_path))
        .route(
            "/v1/groups/{name}",
            any(forward).put(late_settings::create_members).delete(deletes::delete_many),
        )
        .route("/v1/preflight", any(forward).post(late_settings::create_members))
        .route("/v1/{*rest}", any(forward))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(Ports::from_ref(gateway), ports::by_host))
        .with_state(Arc::clone(gateway))
}

/// Answers one request: sets its id first, renders its problem last.
pub(crate) async fn answer(
    metrics: &Metrics,
    ports: &Ports,
    router: Router,
    mut request: Request,
) -> Response {
    let request_id = request_id::ensure(request.headers_mut());
    let asked = Asked::of(&request, ports);
    let mut response = routed(metrics, router, request).await;
    if let Some(problem) = error::carried(&mut response) {
        metrics.problem(problem.code);
        log(&asked, request_id.to_str().unwrap_or_default(), &problem);
        response = error::render(&problem, &request_id);
    }
    response.headers_mut().insert(request_id::HEADER, request_id);
    response
}

/// A panic fails its own request, not the others on the connection.
async fn routed(metrics: &Metrics, router: Router, request: Request) -> Response {
    match AssertUnwindSafe(tower::ServiceExt::oneshot(router, request)).catch_unwind().await {
        Ok(answered) => answered.unwrap_or_else(|never| match never {}),
        Err(_) => {
            metrics.panics.inc();
            let detail = "the gateway failed at this request; its log says where";
            Failure::from(Problem::new(Code::Internal, detail)).into_response()
        }
    }
}

/// Logs one line per refused request: a warning where the fault is not the caller's.
fn log(asked: &Asked, request_id: &str, problem: &Problem) {
    let (code, detail) = (problem.code.name(), &problem.detail);
    let method = &asked.method;
    let (path, sandbox_id) = asked.loggable();
    match problem.code.fault() {
        Fault::Caller | Fault::Workload => {
            tracing::info!(%method, path, request_id, sandbox_id, code, detail, "request refused")
        }
        Fault::Capacity | Fault::Platform => {
            tracing::warn!(%method, path, request_id, sandbox_id, code, detail, "request refused")
        }
    }
}

/// What a log line may need of a request.
struct Asked {
    method: Method,
    path: String,
    /// The sandbox that the host name means; `None` for a request to the gateway itself.
    named: Option<String>,
}

impl Asked {
    fn of(request: &Request, ports: &Ports) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Self { method, path, named: ports.sandbox_named(request) }
    }

    /// What of the path is logged, and the id of the sandbox (empty for none). The path of a request to a sandbox's own
    /// server may hold a secret of its owner: of a port's path what belongs to that server is left out, and all of a
    /// path that is none of the API, which none is by a sandbox's host name.
    fn loggable(&self) -> (&str, &str) {
        if let Some(sandbox_id) = &self.named {
            return ("", sandbox_id);
        }
        let path = self.path.as_str();
        if !path.starts_with("/v1/") {
            return ("", "");
        }
        let sandbox_id =
            path.strip_prefix("/v1/sandboxes/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let shown =
            path.find("/http/").filter(|_| path.contains("/ports/")).map_or(path, |end| &path[..end + 5]);
        (shown, sandbox_id)
    }
}

/// 200 when this gateway takes new calls, else 503 with the reason.
async fn ready(State(gateway): State<Arc<Gateway>>) -> (StatusCode, String) {
    match gateway.not_ready() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> ([(http::HeaderName, &'static str); 1], String) {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], gateway.metrics().render(&gateway.gauges()))
}

async fn wrong_method(request: Request) -> Failure {
    let detail = format!("{} is not offered at {}", request.method(), request.uri().path());
    Problem::new(Code::InvalidArgument, detail).with("field", "method").into()
}

async fn unknown_path(request: Request) -> Failure {
    let detail = format!("there is nothing at {}; the API is under /v1", request.uri().path());
    Problem::new(Code::InvalidArgument, detail).with("field", "path").into()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use http::header::HOST;

    use super::*;
    use crate::settings::Settings;
    use crate::settings::tests::settings;

    #[test]
    fn a_log_names_the_sandbox_and_nothing_that_belongs_to_its_own_server() {
        let domain = Some("p.example.com".to_owned());
        let gateway = Arc::new(Gateway::new(Settings { ports_domain: domain, ..settings() }).unwrap());
        let ports = Ports::from_ref(&gateway);
        let own = "/v1/sandboxes/sb-2/SECRET";
        for (host, path, logged) in [
            ("gateway", "/v1/sandboxes/sb-1/exec", ("/v1/sandboxes/sb-1/exec", "sb-1")),
            ("gateway", "/v1/sandboxes", ("/v1/sandboxes", "")),
            (
                "gateway",
                "/v1/sandboxes/sb-1/ports/80/http/reset/SECRET",
                ("/v1/sandboxes/sb-1/ports/80/http", "sb-1"),
            ),
            ("gateway", "/reset/SECRET", ("", "")),
            ("80-sb-1.p.example.com", own, ("", "sb-1")),
            ("no-port.p.example.com", own, ("", "")),
        ] {
            let by_header = Request::get(path).header(HOST, host).body(Body::empty()).unwrap();
            let by_authority = Request::get(format!("http://{host}{path}")).body(Body::empty()).unwrap();
            for request in [by_header, by_authority] {
                assert_eq!(Asked::of(&request, &ports).loggable(), logged, "{host} {path}");
            }
        }
    }

    #[tokio::test]
    #[allow(clippy::panic, reason = "the panic is what is tested")]
    async fn a_panic_is_an_answer_and_is_counted() {
        async fn broken() -> &'static str {
            panic!("for the test")
        }
        let (gateway, router) = (Arc::new(Gateway::new(settings()).unwrap()), Router::new().fallback(broken));
        let request = Request::get("/v1").body(Body::empty()).unwrap();
        let response = answer(gateway.metrics(), &Ports::from_ref(&gateway), router, request).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(gateway.metrics().panics.get(), 1);
    }
}
