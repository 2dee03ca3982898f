//! A gRPC connection to another part, such as the control plane.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use resolve::Address;

use crate::transport::Dialer;

/// The task of the connection; aborted when dropped, so that it never outlives what it was opened for.
pub struct Connection(tokio::task::JoinHandle<()>);

impl Connection {
    /// Connects; the caller sets the timeout.
    ///
    /// # Errors
    /// The part does not answer, or not in HTTP/2.
    pub async fn open(dialer: &Dialer, address: &Address) -> io::Result<(Sender, Self)> {
        let stream = dialer.connect(address).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        // What is read from the connection reports how it ended.
        Ok((Sender(sender), Self(tokio::spawn(async move { drop(connection.await) }))))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends gRPC requests over the connection.
#[derive(Debug, Clone)]
pub struct Sender(http2::SendRequest<tonic::body::Body>);

impl tower::Service<http::Request<tonic::body::Body>> for Sender {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
