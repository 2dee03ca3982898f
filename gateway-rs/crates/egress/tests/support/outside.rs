//! Servers outside: what they get they keep, or send back.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A server whose connections the test takes.
pub struct Server {
    pub address: SocketAddr,
    connections: mpsc::UnboundedReceiver<TcpStream>,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on a free port of an address of this machine.
    pub async fn listen(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, connections) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(accepted.send(stream));
            }
        });
        Self { address, connections, task }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The next connection.
    pub async fn accept(&mut self) -> TcpStream {
        self.connections.recv().await.unwrap()
    }

    /// Whether nobody has connected so far.
    pub fn is_untouched(&mut self) -> bool {
        self.connections.try_recv().is_err()
    }

    /// Answers one request of HTTP with these bytes, and closes; returns the head of the request.
    pub async fn answer(&mut self, answer: &str) -> String {
        let mut stream = self.accept().await;
        let head = head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        head
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the head of a request.
pub async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}
