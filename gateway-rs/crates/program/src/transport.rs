//! Byte streams to other parts of rollbox: unix socket or TCP, behind one type.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use resolve::{Address, Lookup as _, NameServers};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP connection.
    Tcp(TcpStream),
}

/// Opens connections. Host names are looked up for every connection, so that a Service that was recreated is found at
/// its new address.
#[derive(Debug, Default)]
pub struct Dialer {
    /// Created when the first name occurs: an installation without names needs no resolver configuration.
    names: OnceLock<NameServers>,
}

impl Dialer {
    /// Connects; the caller sets the timeout. TCP without Nagle's delay: requests are small, and their answers are
    /// waited for.
    ///
    /// # Errors
    /// No address answers, or the name has none; the error contains the name.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped connect leaves no socket behind.
    pub async fn connect(&self, address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Address::Tcp { host, port } => {
                let mut refused = io::Error::from(io::ErrorKind::NotFound);
                for ip in self.addresses(host).await? {
                    match TcpStream::connect((ip, *port)).await {
                        Ok(stream) => return stream.set_nodelay(true).map(|()| Stream::Tcp(stream)),
                        Err(e) => refused = e,
                    }
                }
                Err(refused)
            }
        }
    }

    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let names = match self.names.get() {
            Some(names) => names,
            None => {
                let names = NameServers::system().map_err(io::Error::other)?;
                self.names.get_or_init(|| names)
            }
        };
        names.lookup(host).await.map_err(io::Error::other)
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Calls the same method on whichever socket it is.
macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Unix($stream) => $call,
            Stream::Tcp($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
