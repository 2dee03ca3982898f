//! A sandbox with a relay, and egress' end of a link to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wire::Problem;
use wire::agent::{EgressOpened, ListRefusedRequest, OpenEgressRequest, Refused};

use crate::sandbox::{LIMIT, Sandbox, free_address, problem, scoped, signed, with_token};

/// A sandbox where egress is installed.
pub struct Installed {
    pub sandbox: Sandbox,
    pub port: u16,
}

/// Egress' end of a link.
pub struct Link {
    accepted: mpsc::Receiver<Stream>,
    tasks: JoinSet<()>,
}

/// A program's connection, as egress sees it.
pub struct Stream {
    pub request: Request<()>,
    pub up: RecvStream,
    pub down: SendStream<Bytes>,
}

impl Installed {
    pub async fn start() -> Self {
        let address: std::net::SocketAddr = free_address("127.0.0.1").parse().unwrap();
        let port = address.port();
        let sandbox = Sandbox::start_with(&[("EGRESS_PORT", &port.to_string())]).await;
        Self { sandbox, port }
    }

    pub async fn open(&self, ticket: &[u8], token: &str) -> Result<EgressOpened, Problem> {
        let request = with_token(OpenEgressRequest { ticket: ticket.to_vec() }, token);
        let answer = self.sandbox.client.clone().open_egress(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
    }

    /// Connections that were refused for want of a link.
    pub async fn refused(&self) -> u64 {
        self.open(&fresh_ticket(), &scoped("egress")).await.unwrap().refused
    }

    /// What is on record of them.
    pub async fn refusals(&self) -> Vec<Refused> {
        let asked = signed(ListRefusedRequest {});
        self.sandbox.client.clone().list_refused(asked).await.unwrap().into_inner().refused
    }

    pub async fn leg(&self, ticket: &[u8]) -> UnixStream {
        let mut leg = UnixStream::connect(self.sandbox.directory.path().join("agent.sock")).await.unwrap();
        leg.write_all(&[b"LEG ".as_slice(), ticket].concat()).await.unwrap();
        leg
    }

    /// Opens a link, as egress does.
    pub async fn link(&self) -> Link {
        let ticket = fresh_ticket();
        self.open(&ticket, &scoped("egress")).await.unwrap();
        Link::over(self.leg(&ticket).await).await
    }

    /// A program's connection to the proxy.
    pub async fn program(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// The pid of the relay, once one runs that is not `before`.
    pub async fn relay(&self, before: i32) -> i32 {
        loop {
            match relays(self.sandbox.sidecar.0.id()).pop() {
                Some(pid) if pid != before => return pid,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

/// The first word of a line of `/proc/PID/status`.
pub fn status(pid: i32, name: &str) -> String {
    try_status(pid, name).unwrap()
}

/// `None`: there is no such process, or no such line.
pub fn try_status(pid: i32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').split_whitespace().next().map(str::to_owned)
}

/// The peak of a process' memory; gVisor tells only what it holds now.
pub fn memory_kib(pid: i32) -> u64 {
    try_status(pid, "VmHWM").unwrap_or_else(|| status(pid, "VmRSS")).parse().unwrap()
}

/// The relays of a sidecar. The process that was started is the sidecar: `prlimit` executes it.
pub fn relays(sidecar: u32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{sidecar}/task/{sidecar}/children")).unwrap();
    let is_relay = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "rollbox-relay")
    };
    children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(is_relay).collect()
}

impl Link {
    pub async fn over(leg: UnixStream) -> Self {
        let mut protocol = h2::server::Builder::new();
        // As egress has them: the library allows unread small pieces in proportion to the window.
        protocol
            .max_concurrent_streams(256)
            .initial_window_size(64 << 10)
            .initial_connection_window_size(4 << 20);
        let connection = tokio::time::timeout(LIMIT, protocol.handshake(leg)).await.unwrap().unwrap();
        let (streams, accepted) = mpsc::channel(1024);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(connection, streams));
        Self { accepted, tasks }
    }

    /// The next connection of a program, accepted.
    pub async fn accept(&mut self) -> Stream {
        tokio::time::timeout(LIMIT, self.accepted.recv()).await.unwrap().unwrap()
    }

    /// The next connection of a program; `None` once the link has ended.
    pub async fn accept_any(&mut self) -> Option<Stream> {
        self.accepted.recv().await
    }

    /// Closes it, as egress does that is killed.
    pub async fn cut(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn accept(mut connection: Connection<UnixStream, Bytes>, streams: mpsc::Sender<Stream>) {
    while let Some(accepted) = connection.accept().await {
        let Ok((request, respond)) = accepted else { return };
        let (parts, up) = request.into_parts();
        assert_eq!(parts.method, Method::CONNECT);
        let down = answer(respond);
        let _ = streams.try_send(Stream { request: Request::from_parts(parts, ()), up, down });
    }
}

fn answer(mut respond: SendResponse<Bytes>) -> SendStream<Bytes> {
    respond.send_response(Response::new(()), false).unwrap()
}

impl Stream {
    /// The next bytes from the program; `None` at their end.
    pub async fn next(&mut self) -> Option<Result<Bytes, h2::Error>> {
        loop {
            let piece = tokio::time::timeout(LIMIT, self.up.data()).await.unwrap()?;
            if let Ok(piece) = &piece {
                self.up.flow_control().release_capacity(piece.len()).unwrap();
                // The frame that ends a direction may be empty.
                if piece.is_empty() {
                    continue;
                }
            }
            return Some(piece);
        }
    }

    /// This many bytes from the program.
    pub async fn take(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend_from_slice(&self.next().await.unwrap().unwrap());
        }
        all
    }

    pub fn send(&mut self, data: &'static [u8], end: bool) {
        self.down.send_data(Bytes::from_static(data), end).unwrap();
    }
}

pub fn fresh_ticket() -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u128::from(NEXT.fetch_add(1, Ordering::Relaxed)).to_be_bytes().to_vec()
}

pub async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    all
}
