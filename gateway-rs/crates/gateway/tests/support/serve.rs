//! HTTP/2 on a unix socket, for gRPC fakes. Dropping the handle breaks every connection.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tower::Service;

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
        let listener = UnixListener::bind(path).unwrap();
        let (count, connections) = watch::channel(0);
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let service = TowerToHyperService::new(service.clone());
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                open.spawn(async move { drop(http2.serve_connection(TokioIo::new(stream), service).await) });
            }
        });
        Self { path: path.to_owned(), task: task.abort_handle(), connections }
    }

    /// Connections that were ever accepted.
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
