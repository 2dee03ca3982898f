//! An HTTP client that keeps status, headers and body apart.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::clock::real_pause;

/// An answer of the gateway.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The code of a problem; checks that the problem is complete.
    pub fn code(&self) -> String {
        let body = self.json();
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        assert_eq!(body["status"], self.status.as_u16());
        assert_eq!(body["request_id"], self.headers["x-request-id"].to_str().unwrap());
        body["code"].as_str().unwrap().to_owned()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }
}

/// A client of one gateway.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: SocketAddr,
    http: legacy::Client<HttpConnector, Body>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, http: legacy::Client::builder(TokioExecutor::new()).build_http() }
    }

    /// The same over HTTP/2 with prior knowledge.
    pub fn http2(address: SocketAddr) -> Self {
        Self { address, http: legacy::Client::builder(TokioExecutor::new()).http2_only(true).build_http() }
    }

    pub async fn exec(&self, id: &str, token: &str, body: impl Into<Body>) -> Answer {
        let request = self.request(Method::POST, &format!("/v1/sandboxes/{id}/exec"));
        self.send(request.header("authorization", format!("Bearer {token}")).body(body.into()).unwrap()).await
    }

    pub async fn call(&self, method: Method, path: &str, token: &str) -> Answer {
        let request = self.request(method, path).header("authorization", format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path).body(Body::empty()).unwrap()).await
    }

    pub fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("http://{}{path}", self.address))
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let answer = self.open(request).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// Returns the head of the answer; its body streams.
    pub async fn open(&self, request: Request<Body>) -> http::Response<hyper::body::Incoming> {
        tokio::time::timeout(super::controlplane::LIMIT, self.http.request(request)).await.unwrap().unwrap()
    }

    pub async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("rollbox_gateway_{name} ")));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().unwrap()
    }

    /// Polls until a metric has this value: for effects that no answer shows.
    pub async fn until_metric(&self, name: &str, value: f64) {
        self.until(async || (self.metric(name).await - value).abs() < f64::EPSILON).await;
    }

    pub async fn until_ready(&self) {
        self.until(async || self.get("/readyz").await.status == StatusCode::OK).await;
    }

    /// Limited in real time: the runtime's clock may be stopped.
    pub async fn until(&self, condition: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !condition().await {
            assert!(began.elapsed() < super::controlplane::LIMIT, "the condition did not come true in time");
            real_pause(Duration::from_millis(5)).await;
        }
    }
}
