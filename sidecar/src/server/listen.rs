//! Sockets, connections and their orderly end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::interceptor::InterceptedService;
use wire::agent::agent_server::AgentServer;

use super::agent::Service;
use crate::auth::Auth;
use crate::settings::Endpoint;

/// The largest input (16 MiB) and the largest answer (two outputs of 16 MiB) with room to spare.
const MAX_MESSAGE_BYTES: usize = 40 << 20;
/// A gateway keeps one connection; a few more come from replicas and the control plane.
const MAX_CONNECTIONS: usize = 64;
const MAX_STREAMS: u32 = 512;
/// Small: the peer is near, and every connection holds such buffers.
const WINDOW_BYTES: u32 = 256 << 10;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// A peer whose machine is gone says no word of it, and its calls would count as waiters for ever.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// After a failed accept (out of descriptors) there is no point in trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// By path.
    Unix(UnixListener),
    /// By address.
    Tcp(TcpListener),
}

trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

type Agent = InterceptedService<AgentServer<Service>, Auth>;

impl Listener {
    /// Binds `endpoint`; a socket file that an earlier process left is replaced. Anyone may connect to it: who may
    /// reach it is a matter of its directory, who may call a matter of the token.
    ///
    /// # Errors
    /// It cannot be bound.
    pub async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Endpoint::Unix(path) => {
                match fs::remove_file(path) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                    _ => {}
                }
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, Permissions::from_mode(0o666))?;
                Ok(Self::Unix(listener))
            }
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Serves until `draining` turns true; then takes no new connections or calls, and waits up to `grace` for those
/// that are under way.
pub async fn serve(
    listener: Listener,
    service: Service,
    auth: Auth,
    mut draining: watch::Receiver<bool>,
    grace: Duration,
) {
    let agent = AgentServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let agent = InterceptedService::new(agent, auth);
    let mut connections = JoinSet::new();
    let stop = draining.clone();
    let mut drained = std::pin::pin!(draining.wait_for(|draining| *draining));
    loop {
        tokio::select! {
            biased;
            _ = &mut drained => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok(stream) => drop(connections.spawn(connection(stream, agent.clone(), stop.clone()))),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let all_closed = async { while connections.join_next().await.is_some() {} };
    // What is not done by then ends with the process.
    let _ = tokio::time::timeout(grace, all_closed).await;
}

async fn connection(stream: Box<dyn Connection>, agent: Agent, mut draining: watch::Receiver<bool>) {
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let served = protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(agent));
    let mut served = std::pin::pin!(served);
    // How a connection ends is its peer's business; calls have their own answers.
    tokio::select! {
        _ = served.as_mut() => return,
        _ = draining.wait_for(|draining| *draining) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}
