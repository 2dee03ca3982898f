//! A TCP port in front of a fake's unix socket, which can vanish as a pod does: without closing its connections.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Forwards until dropped.
#[derive(Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    frozen: Arc<watch::Sender<bool>>,
    cuts: Arc<watch::Sender<usize>>,
    task: AbortHandle,
}

impl Proxy {
    pub async fn listen(socket: &Path) -> Self {
        Self::listen_at("127.0.0.1:0", socket).await
    }

    pub async fn listen_at(address: &str, socket: &Path) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (frozen, cuts) = (Arc::new(watch::Sender::new(false)), Arc::new(watch::Sender::new(0)));
        let signals = (Arc::clone(&frozen), Arc::clone(&cuts));
        let task = tokio::spawn(accept(listener, socket.to_owned(), signals)).abort_handle();
        Self { address, frozen, cuts, task }
    }

    /// Breaks the connections that are open.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Accepts no more connections and moves no more bytes on the open ones, which stay open.
    pub fn vanish(&self) {
        self.frozen.send_replace(true);
        self.task.abort();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Signals = (Arc<watch::Sender<bool>>, Arc<watch::Sender<usize>>);

async fn accept(listener: TcpListener, socket: PathBuf, (frozen, cuts): Signals) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (socket, mut frozen, mut cuts) = (socket.clone(), frozen.subscribe(), cuts.subscribe());
        tokio::spawn(async move {
            let Ok(mut fake) = UnixStream::connect(socket).await else { return };
            let vanished = async { frozen.wait_for(|frozen| *frozen).await.is_ok() };
            let stays_open = tokio::select! {
                _ = copy_bidirectional(&mut stream, &mut fake) => false,
                Ok(()) = cuts.changed() => false,
                vanished = vanished => vanished,
            };
            if stays_open {
                std::future::pending().await
            }
        });
    }
}
