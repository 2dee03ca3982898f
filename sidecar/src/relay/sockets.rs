//! The sockets on the sandbox's loopback.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};

use crate::settings::{Egress, NAMES_PORT};

/// Connections that wait to be accepted: as many as the relay holds open.
const BACKLOG: i32 = 256;

/// What the relay accepts from. Bound by the sidecar, which keeps them for the next relay.
#[derive(Debug)]
pub struct Sockets {
    /// The proxy's port, of IPv4 and, where the sandbox has it, of IPv6.
    pub proxies: Vec<OwnedFd>,
    /// The resolver's sockets: UDP, then TCP; none where it is not wanted.
    pub names: Vec<OwnedFd>,
    /// The proxy's port.
    pub port: u16,
}

impl Sockets {
    /// Binds them, without SO_REUSEADDR, so that no other socket can take connections over. A kernel without IPv6 has
    /// no IPv6 socket.
    ///
    /// # Errors
    /// An address cannot be bound; the message names it.
    pub fn bind(egress: Egress) -> io::Result<Self> {
        let proxy = bound((Ipv4Addr::LOCALHOST, egress.port).into(), SockType::Stream)?;
        let mut proxies = vec![proxy];
        let address = (Ipv6Addr::LOCALHOST, egress.port).into();
        match open(address, SockType::Stream) {
            Ok(proxy) => proxies.push(proxy),
            Err(err) if is_without_ipv6(err) => {}
            Err(err) => return Err(named(address, err)),
        }
        let mut names = Vec::new();
        if egress.dns {
            for kind in [SockType::Datagram, SockType::Stream] {
                names.push(bound((Ipv4Addr::LOCALHOST, NAMES_PORT).into(), kind)?);
            }
        }
        Ok(Self { proxies, names, port: egress.port })
    }

    /// All of them, in the order in which they travel.
    pub fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.proxies.iter().chain(&self.names)
    }
}

/// Binds an address, and listens on it if it is a stream's.
fn bound(address: SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
    open(address, kind).map_err(|err| named(address, err))
}

fn open(address: SocketAddr, kind: SockType) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
        // A loopback that is not up yet has no address of IPv6, while that of IPv4 can be bound: user code could take
        // the port later. Where the kernel does not know the option (gVisor), the address is there from the start.
        let _ = setsockopt(&socket, sockopt::IpFreebind, &true);
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    if kind == SockType::Stream {
        listen(&socket, Backlog::new(BACKLOG)?)?;
    }
    Ok(socket)
}

fn named(address: SocketAddr, err: Errno) -> io::Error {
    let err = io::Error::from(err);
    io::Error::new(err.kind(), format!("cannot listen on {address}: {err}"))
}

/// EAFNOSUPPORT: the node was started without it (`ipv6.disable=1`).
fn is_without_ipv6(err: Errno) -> bool {
    matches!(err, Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_ipv6_is_told_apart_from_a_port_that_is_taken() {
        assert!(is_without_ipv6(Errno::EAFNOSUPPORT));
        assert!(!is_without_ipv6(Errno::EADDRINUSE));
    }
}
