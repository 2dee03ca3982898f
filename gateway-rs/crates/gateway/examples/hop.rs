//! Measures what the gateway adds: runs `true` through the gateway and on a direct connection to the sidecar, in
//! turns, as one client. Prints the two distributions in ms as JSON. `make bench` runs it; its settings are
//! environment variables.
#![allow(clippy::expect_used, reason = "a benchmark ends where its set-up fails")]

use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use wire::agent::agent_client::AgentClient;
use wire::agent::{End, ExecRequest};

const WARM_UP: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let setting = |name: &str| std::env::var(name).unwrap_or_else(|_| panic_with(name));
    let execs: usize = setting("HOP_EXECS").parse().expect("HOP_EXECS is a number");
    let bearer = format!("Bearer {}", setting("HOP_TOKEN"));
    let mut direct = Direct::connect(setting("HOP_SIDECAR"), &bearer).await;
    let mut gateway = Gateway::connect(&setting("HOP_GATEWAY"), &setting("HOP_SANDBOX"), bearer).await;
    let mut figures = (Vec::with_capacity(execs), Vec::with_capacity(execs));
    for turn in 0..WARM_UP + execs {
        let began = Instant::now();
        direct.exec(turn).await;
        let between = Instant::now();
        gateway.exec().await;
        let ended = Instant::now();
        if turn >= WARM_UP {
            figures.0.push((between - began).as_secs_f64() * 1e3);
            figures.1.push((ended - between).as_secs_f64() * 1e3);
        }
    }
    println!(
        "{}",
        serde_json::json!({"direct": distribution(figures.0), "gateway": distribution(figures.1)})
    );
}

fn panic_with(name: &str) -> String {
    eprintln!("hop: {name} is not set; run it by `make bench`");
    std::process::exit(64)
}

fn distribution(mut values: Vec<f64>) -> serde_json::Value {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() as f64 * share).ceil() as usize).max(1) - 1];
    serde_json::json!({"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1.0), "n": values.len()})
}

struct Direct {
    client: AgentClient<Channel>,
    authorization: MetadataValue<Ascii>,
}

impl Direct {
    async fn connect(socket: String, bearer: &str) -> Self {
        let connector = tower::service_fn(move |_| {
            let path = socket.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://sidecar");
        let channel = endpoint.connect_with_connector(connector).await.expect("the sidecar's socket is open");
        Self { client: AgentClient::new(channel), authorization: bearer.parse().expect("a token is ASCII") }
    }

    async fn exec(&mut self, turn: usize) {
        let mut request = tonic::Request::new(ExecRequest {
            exec_id: format!("hop-{}-{turn}", std::process::id()),
            argv: vec!["true".to_owned()],
            ..Default::default()
        });
        request.metadata_mut().insert("authorization", self.authorization.clone());
        let result = self.client.exec(request).await.expect("the sidecar answers").into_inner();
        assert!(result.end() == End::Exited && result.exit_code == 0, "unexpected end: {result:?}");
    }
}

struct Gateway {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
    path: String,
    bearer: String,
}

impl Gateway {
    async fn connect(host: &str, sandbox: &str, bearer: String) -> Self {
        let stream = TcpStream::connect(host).await.expect("the gateway listens");
        stream.set_nodelay(true).expect("a connected socket takes options");
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("the gateway speaks HTTP/1.1");
        tokio::spawn(connection);
        Self { sender, host: host.to_owned(), path: format!("/v1/sandboxes/{sandbox}/exec"), bearer }
    }

    async fn exec(&mut self) {
        let request = Request::post(&self.path)
            .header("host", &self.host)
            .header("authorization", &self.bearer)
            .header("content-type", "application/json")
            .body(Full::from(r#"{"argv":["true"]}"#))
            .expect("the request is well formed");
        let answer = self.sender.send_request(request).await.expect("the gateway answers");
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("the answer is whole").to_bytes();
        assert!(status == 200 && body.windows(13).any(|w| w == b"\"exit_code\":0"), "{status}: {body:?}");
    }
}
