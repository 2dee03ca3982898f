//! A fake sidecar with its relay: it takes links, and sends connections of programs up the latest one.

use std::convert::Infallible;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::Socket;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::Status;
use wire::agent::{EgressOpened, OpenEgressRequest};

use super::serve::{Leg, Served};

type Sender = SendRequest<Empty<Bytes>>;

/// The handle of a fake.
pub struct Relay {
    pub served: Served,
    pub calls: Calls,
    legs: mpsc::UnboundedReceiver<Leg>,
    link: Option<Sender>,
    links: JoinSet<()>,
    /// The socket of the link.
    socket: Option<Socket>,
}

/// The token and the ticket of a call.
type Call = (String, Vec<u8>);

/// The calls that came: the token and the ticket of each; whether they are refused, and whether they get no answer.
#[derive(Clone, Default)]
pub struct Calls {
    pub came: Arc<Mutex<Vec<Call>>>,
    pub refuses: Arc<watch::Sender<bool>>,
    pub holds: Arc<watch::Sender<bool>>,
}

impl Relay {
    pub fn listen(path: &Path) -> Self {
        let (legs, coming) = mpsc::unbounded_channel();
        let calls = Calls::default();
        let served = Served::grpc_and_legs(path, calls.clone(), legs);
        Self { served, calls, legs: coming, link: None, links: JoinSet::new(), socket: None }
    }

    /// Takes the next link.
    pub async fn linked(&mut self) {
        let (ticket, stream) = self.legs.recv().await.unwrap();
        assert!(self.calls.came.lock().unwrap().iter().any(|(_, known)| *known == ticket));
        self.socket = Some(stream.as_fd().try_clone_to_owned().unwrap().into());
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        self.links.spawn(async move { drop(connection.await) });
        self.link = Some(sender);
    }

    /// Whether no further link has come.
    pub fn has_no_leg(&self) -> bool {
        self.legs.is_empty()
    }

    /// Closes the link, as a relay that is killed does.
    pub async fn lose_link(&mut self) {
        self.socket.take().unwrap().shutdown(Shutdown::Both).unwrap();
        self.link = None;
        self.links.shutdown().await;
    }

    /// Whether the link takes connections.
    pub fn is_linked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.is_closed())
    }

    /// A program's connection to the proxy.
    pub async fn program(&self) -> Program {
        self.try_program().await.unwrap()
    }

    pub async fn try_program(&self) -> Result<Program, hyper::Error> {
        let mut link = self.link.clone().unwrap();
        link.ready().await?;
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri("egress:3128")
            .header("rollbox-family", "4")
            .body(Empty::new())
            .unwrap();
        let response = link.send_request(request).await?;
        assert_eq!(response.status(), 200);
        Ok(Program(TokioIo::new(hyper::upgrade::on(response).await?)))
    }

    /// Sends a request of HTTP and returns the whole answer; the proxy closes behind it.
    pub async fn ask(&self, request: &str) -> String {
        let mut program = self.program().await;
        program.send(request.as_bytes()).await;
        program.rest().await
    }

    /// Asks for a tunnel; returns it with the head of the answer.
    pub async fn connect(&self, target: &str) -> (Program, String) {
        let mut program = self.program().await;
        program.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await;
        let head = program.head().await;
        (program, head)
    }
}

/// A connection of a program to the proxy.
pub struct Program(pub TokioIo<Upgraded>);

impl Program {
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The head of an answer.
    pub async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(head).unwrap()
    }

    pub async fn exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    /// All that comes until the proxy closes, or breaks off.
    pub async fn rest_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        drop(self.0.read_to_end(&mut bytes).await);
        bytes
    }

    pub async fn rest(&mut self) -> String {
        String::from_utf8(self.rest_bytes().await).unwrap()
    }

    /// Ends this side.
    pub async fn finish(&mut self) {
        self.0.shutdown().await.unwrap();
    }
}

impl tower::Service<Request<Incoming>> for Calls {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let calls = self.clone();
        Box::pin(async move {
            assert_eq!(request.uri().path(), "/rollbox.agent.v1.Agent/OpenEgress");
            let token = bearer(request.headers());
            let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
            Ok(grpc.unary(Open { calls, token }, request).await)
        })
    }
}

fn bearer(headers: &HeaderMap) -> String {
    headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned()
}

struct Open {
    calls: Calls,
    token: String,
}

impl tonic::server::UnaryService<OpenEgressRequest> for Open {
    type Response = EgressOpened;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<EgressOpened>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<OpenEgressRequest>) -> Self::Future {
        let refuses = *self.calls.refuses.borrow();
        let came = (self.token.clone(), request.into_inner().ticket.to_vec());
        self.calls.came.lock().unwrap().push(came);
        let answer = if refuses {
            Err(Status::permission_denied("no such scope"))
        } else {
            Ok(EgressOpened { refused: 0 })
        };
        let mut holds = self.calls.holds.subscribe();
        Box::pin(async move {
            holds.wait_for(|holds| !holds).await.unwrap();
            answer.map(tonic::Response::new)
        })
    }
}
