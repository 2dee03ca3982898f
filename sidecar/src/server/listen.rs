//! Listening sockets, and which peers may connect to them.

use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::leg::Connection;
use crate::settings::Endpoint;

/// Connections that wait to be accepted; the runtime's usual number.
const BACKLOG: u32 = 1024;

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket, by path.
    Unix(UnixListener),
    /// A TCP socket, by address.
    Tcp {
        /// The socket.
        listener: TcpListener,
        /// Whether connections from this machine are closed at once.
        refuses_local: bool,
    },
}

/// A byte stream to a peer.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {
    /// Peeks at the first byte, which stays to be read.
    ///
    /// # Errors
    /// The peer is gone, or has closed without sending a byte.
    fn poll_first(&self, cx: &mut Context<'_>) -> Poll<io::Result<u8>>;

    /// Gives the socket itself.
    ///
    /// # Errors
    /// The runtime does not let go of it.
    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd>;
}

impl Connection for Box<dyn Stream> {
    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd> {
        (*self).into_socket()
    }
}

impl Stream for TcpStream {
    fn poll_first(&self, cx: &mut Context<'_>) -> Poll<io::Result<u8>> {
        let mut first = [0];
        let count = ready!(self.poll_peek(cx, &mut ReadBuf::new(&mut first)))?;
        Poll::Ready(only(count, first))
    }

    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd> {
        self.into_std().map(OwnedFd::from)
    }
}

impl Stream for UnixStream {
    fn poll_first(&self, cx: &mut Context<'_>) -> Poll<io::Result<u8>> {
        let mut first = [0];
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut peek = || Ok(recv(self.as_raw_fd(), &mut first, MsgFlags::MSG_PEEK)?);
            match self.try_io(Interest::READABLE, &mut peek) {
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                count => return Poll::Ready(only(count?, first)),
            }
        }
    }

    fn into_socket(self: Box<Self>) -> io::Result<OwnedFd> {
        self.into_std().map(OwnedFd::from)
    }
}

fn only(count: usize, first: [u8; 1]) -> io::Result<u8> {
    if count == 1 { Ok(first[0]) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

impl Listener {
    /// Binds `endpoint`; replaces a socket file that an earlier process left. Any process may connect to that: its
    /// directory decides which processes can reach it, the token which calls are accepted.
    ///
    /// A TCP socket on another address than a loopback one refuses peers on this machine: in a pod the user's code
    /// shares the network namespace, and legitimate callers never come from there. The address is shared with no other
    /// socket, so the user's code cannot take connections over either, even as root.
    ///
    /// # Errors
    /// The endpoint cannot be bound.
    pub async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let listener = listen(*address)?;
                Ok(Self::Tcp { listener, refuses_local: !address.ip().to_canonical().is_loopback() })
            }
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

    /// The next connection; `None` for one that was refused, so that the caller's loop gets a turn after each.
    ///
    /// # Errors
    /// This process is out of descriptors, or the peer is gone already.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call loses no connection.
    pub async fn accept(&self) -> io::Result<Option<Box<dyn Stream>>> {
        match self {
            Self::Unix(listener) => Ok(Some(Box::new(listener.accept().await?.0))),
            Self::Tcp { listener, refuses_local } => {
                let (stream, peer) = listener.accept().await?;
                if *refuses_local && (is_local(peer, stream.local_addr()?) || is_ours(peer)) {
                    return Ok(None);
                }
                stream.set_nodelay(true)?;
                probe(&stream)?;
                Ok(Some(Box::new(stream)))
            }
        }
    }
}

/// TCP keep-alive probes find a dead peer where the sidecar sends nothing: from a leg into the sandbox it only reads.
/// The probes are rarer than the HTTP/2 pings, so connections with pings cost no probes.
fn probe(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &10)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &5)?;
    setsockopt(stream, sockopt::TcpKeepCount, &2)?;
    Ok(())
}

/// Without SO_REUSEADDR, which the usual call sets: with it, gVisor would let another socket with the option listen on
/// a single address of the same port, and would give that one the connections. Without it a port stays taken for a
/// minute after its process, which does not matter in a pod: its sidecar is never started again.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether a peer is on this machine: one of the two addresses is a loopback one, or both are the same. A client
/// chooses its own address: from the pod's address it can connect to a loopback one as well.
fn is_local(peer: SocketAddr, own: SocketAddr) -> bool {
    let [peer, own]: [IpAddr; 2] = [peer.ip().to_canonical(), own.ip().to_canonical()];
    peer.is_loopback() || own.is_loopback() || peer == own
}

/// Whether a peer's address is one of this machine's, which may have several (of both families, link-local ones): a
/// socket can be bound only to one of those.
fn is_ours(peer: SocketAddr) -> bool {
    let mut address = peer;
    address.set_port(0);
    std::net::UdpSocket::bind(address).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_local_when_either_address_is_a_loopback_one_or_both_are_the_same() {
        for (peer, own, expected) in [
            ("10.0.0.1:5", "10.0.0.2:7070", false),
            ("10.0.0.2:5", "10.0.0.2:7070", true),
            ("127.0.0.9:5", "127.0.0.1:7070", true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:10.0.0.2]:7070", true),
            ("[::ffff:10.0.0.2]:5", "[::ffff:10.0.0.2]:7070", true),
            ("[::1]:5", "[::1]:7070", true),
            ("10.0.0.2:5", "127.0.0.1:7070", true),
            ("[::ffff:10.0.0.2]:5", "[::ffff:127.0.0.1]:7070", true),
            ("[fd00::1]:5", "[fd00::2]:7070", false),
        ] {
            assert_eq!(is_local(peer.parse().unwrap(), own.parse().unwrap()), expected, "{peer} to {own}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_known_from_another_ones() {
        // The other two are reserved for documentation: no machine has them.
        for (peer, expected) in [("127.0.0.1:5", true), ("192.0.2.1:5", false), ("[2001:db8::1]:5", false)] {
            assert_eq!(is_ours(peer.parse().unwrap()), expected, "{peer}");
        }
    }
}
