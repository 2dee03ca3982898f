//! A fake control plane that answers from a script, and shows what it was sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::{AbortHandle, JoinSet};

use super::token_of;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Sent {
    pub line: String,
    pub headers: HeaderMap,
    pub body: String,
}

impl Sent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The handle of the fake; dropping it ends it.
pub struct Creates {
    sent: Arc<Mutex<Vec<Sent>>>,
    task: AbortHandle,
}

impl Creates {
    /// Answers each request with the next status and body.
    pub fn listen(path: &Path, script: Vec<(u16, Value)>) -> Self {
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        let listener = UnixListener::bind(path).unwrap();
        let seen = Arc::clone(&sent);
        let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
            let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
            async move { Ok::<_, Infallible>(answer(request, &seen, &script).await) }
        });
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let http1 = hyper::server::conn::http1::Builder::new();
                let connection =
                    http1.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()));
                open.spawn(async move { drop(connection.await) });
            }
        });
        Self { sent, task: task.abort_handle() }
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

impl Drop for Creates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    seen: &Mutex<Vec<Sent>>,
    script: &Mutex<VecDeque<(u16, Value)>>,
) -> Response {
    let (head, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    seen.lock().unwrap().push(Sent {
        line: format!("{} {}", head.method, head.uri.path()),
        headers: head.headers,
        body,
    });
    let (status, body) = script.lock().unwrap().pop_front().unwrap_or((500, json!({})));
    let text = if status == 204 { String::new() } else { body.to_string() };
    let kind = if status < 400 { "application/json" } else { "application/problem+json" };
    let response = Response::builder().status(status).header("content-type", kind);
    response.header("x-answer", "kept").body(Body::from(text)).unwrap()
}

/// The control plane's answer with a sandbox.
pub fn made(id: &str) -> Value {
    json!({"id": id, "token": token_of(id, "alice", &["exec"]), "state": "running"})
}

pub fn problem(code: &str, details: Value) -> Value {
    json!({"code": code, "detail": format!("fake {code}"), "details": details})
}
