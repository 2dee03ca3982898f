//! Plays the sidecars of thousands of pods in one process, for simulations of whole clusters (`tests/scale`):
//!
//!     sidecars PORT
//!
//! Every address of this machine is one pod's: a connection is answered by the sidecar of the address that it came to,
//! and nobody answers at an address without a pod. Tokens are verified as real sidecars do. Reads one JSON object a
//! line from standard input (see `orders`), and serves until that ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program of the tests: it stops at what is wrong"
)]

mod agent;
mod orders;
mod readiness;
mod sidecar;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::pin;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use sidecar::{Pods, address_of};

/// As many connections as two gateways may open at once.
const BACKLOG: u32 = 16_384;

#[tokio::main]
async fn main() {
    let port = std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("usage: sidecars PORT");
    let pods = Arc::new(Pods::default());
    let listener = listen(port);
    println!("listening");
    tokio::spawn(accept(listener, Arc::clone(&pods)));
    orders::follow(pods, port).await;
}

fn listen(port: u16) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))).unwrap();
    socket.listen(BACKLOG).unwrap()
}

async fn accept(listener: TcpListener, pods: Arc<Pods>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, Arc::clone(&pods)))),
            Err(error) => {
                eprintln!("no connection is accepted: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves one connection until its client leaves or the pod ends.
async fn serve(stream: TcpStream, pods: Arc<Pods>) {
    let Some(sidecar) = address_of(&stream).and_then(|address| pods.at(address)) else { return };
    stream.set_nodelay(true).unwrap_or_default();
    let service = TowerToHyperService::new(agent::service(Arc::clone(&sidecar)));
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        () = sidecar.ended() => {}
        // The connection stays open, and nobody looks at it any more.
        () = sidecar.silenced() => sidecar.ended().await,
        _ = connection.as_mut() => {}
    }
}
