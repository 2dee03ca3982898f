//! Dials ports of the sandbox: IPv4 first, then IPv6, on loopback only.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, timeout};
use wire::{Code, Problem};

/// The addresses that reach servers which listen for this machine only, or on all addresses.
const HOSTS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// Timeout of a connect. On loopback one takes microseconds; a longer one means that the server's accept queue is full.
const PATIENCE: Duration = Duration::from_millis(400);
/// Pauses between two attempts: short at first, since most servers are up at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// Opens a TCP connection to `port`. Takes less than a second.
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
            // The error of the IPv4 address is reported: it is the one that people expect.
            Err(err) if host.is_ipv4() => refused = err,
            Err(_) => {}
        }
    }
    Err(unreachable(port, &refused))
}

async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not accept connections");
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await.map_err(late)??;
    // TCP connects a port with itself when the kernel happens to choose it for the local end.
    if stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whether something listens on `port`; waits for it up to `within`. Each attempt opens and closes a connection.
///
/// # Cancel safety
/// Cancel safe.
pub async fn listens(port: u16, within: Duration) -> bool {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if connect(port).await.is_ok() {
            return true;
        }
        let left = within.saturating_sub(began.elapsed());
        if left.is_zero() {
            return false;
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Opens a UDP socket whose peer is `port` on the IPv4 address or, with `second`, on the IPv6 address.
///
/// # Errors
/// `port_unreachable`: the machine has no such address.
pub async fn socket(port: u16, second: bool) -> Result<UdpSocket, Problem> {
    let host = HOSTS[usize::from(second)];
    let bound = async {
        let socket = UdpSocket::bind((host, 0)).await?;
        socket.connect((host, port)).await?;
        Ok(socket)
    };
    bound.await.map_err(|err: io::Error| unreachable(port, &err))
}

/// The problem for a port that cannot be reached, or whose connection broke.
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
