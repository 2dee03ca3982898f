//! Dialling: IPv4 first, then IPv6, on loopback only.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, timeout};
use wire::{Code, Problem};

/// Where servers listen that are meant for one machine, or for all addresses.
const HOSTS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// On loopback an answer takes microseconds; one that does not come is a full queue of a server that accepts nothing.
const PATIENCE: Duration = Duration::from_millis(400);
/// Between two looks at a port: short at first, since most servers are up at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// A TCP connection to `port`. Takes less than a second.
///
/// # Errors
/// `port_unreachable` with the reason.
///
/// # Cancel safety
/// Cancel safe: a dropped call leaves no socket behind.
pub async fn connect(port: u16) -> Result<TcpStream, Problem> {
    let mut refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    for host in HOSTS {
        match attempt(SocketAddr::new(host, port)).await {
            Ok(stream) => return Ok(stream),
            // The first address is the one that people mean.
            Err(err) if host.is_ipv4() => refused = err,
            Err(_) => {}
        }
    }
    Err(unreachable(port, &refused))
}

async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not accept connections");
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await.map_err(late)??;
    // TCP connects a port with itself when the kernel happens to choose it for the caller's end.
    if stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whether something listens on `port`, at the latest after `patience`. Opens and closes a connection for every look.
///
/// # Cancel safety
/// Cancel safe.
pub async fn listens(port: u16, patience: Duration) -> bool {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if connect(port).await.is_ok() {
            return true;
        }
        let left = patience.saturating_sub(began.elapsed());
        if left.is_zero() {
            return false;
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// A UDP socket whose peer is `port`; with `second`, on the other of the two addresses.
///
/// # Errors
/// `port_unreachable`: there is no such address.
pub async fn socket(port: u16, second: bool) -> Result<UdpSocket, Problem> {
    let host = HOSTS[usize::from(second)];
    let bound = async {
        let socket = UdpSocket::bind((host, 0)).await?;
        socket.connect((host, port)).await?;
        Ok(socket)
    };
    bound.await.map_err(|err: io::Error| unreachable(port, &err))
}

/// What a caller gets for a port that does not answer, or does no more.
pub fn unreachable(port: u16, err: &io::Error) -> Problem {
    let (reason, sentence) = match err.kind() {
        io::ErrorKind::ConnectionRefused => ("refused", "nothing listens there".to_owned()),
        io::ErrorKind::TimedOut => ("timeout", err.to_string()),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ("reset", "the server broke the connection".to_owned())
        }
        _ => ("failed", err.to_string()),
    };
    let detail = format!("port {port} of the sandbox cannot be reached: {sentence}");
    Problem::new(Code::PortUnreachable, detail).with("port", port).with("reason", reason)
}
