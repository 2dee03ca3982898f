//! HTTP/2 on a unix socket, for gRPC fakes, and legs on the same socket. Dropping the handle breaks every connection.

use std::convert::Infallible;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tower::Service;

/// The ticket of a leg, and its connection.
pub type Leg = (Vec<u8>, UnixStream);

/// A listening fake.
#[derive(Debug)]
pub struct Served {
    path: PathBuf,
    task: AbortHandle,
    connections: watch::Receiver<usize>,
}

impl Served {
    /// Serves at `path` until dropped.
    pub fn grpc<S>(path: &Path, service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<tonic::body::Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        Self::grpc_and_legs(path, service, mpsc::unbounded_channel().0)
    }

    /// The same for a fake that also accepts legs.
    pub fn grpc_and_legs<S>(path: &Path, service: S, legs: mpsc::UnboundedSender<Leg>) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<tonic::body::Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let listener = UnixListener::bind(path).unwrap();
        let (count, connections) = watch::channel(0);
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let legs = legs.clone();
                let service = TowerToHyperService::new(service.clone());
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                open.spawn(async move {
                    let mut begin = [0; 4];
                    if stream.read_exact(&mut begin).await.is_err() {
                        return;
                    }
                    if begin == *b"LEG " {
                        let mut ticket = vec![0; 16];
                        stream.read_exact(&mut ticket).await.unwrap();
                        drop(legs.send((ticket, stream)));
                        return;
                    }
                    let (read, write) = stream.into_split();
                    let whole = tokio::io::join(Cursor::new(begin).chain(read), write);
                    drop(http2.serve_connection(TokioIo::new(whole), service).await);
                });
            }
        });
        Self { path: path.to_owned(), task: task.abort_handle(), connections }
    }

    /// Number of connections accepted so far.
    pub fn connections(&self) -> usize {
        *self.connections.borrow()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        drop(std::fs::remove_file(&self.path));
    }
}
