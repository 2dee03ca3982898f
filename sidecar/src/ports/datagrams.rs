//! UDP: each frame is one datagram.

use std::io;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio_stream::StreamExt;
use wire::agent::PortFrame;
use wire::{Code, Problem};

use super::dial::{socket, unreachable};
use super::{Answers, Frames};

/// The largest payload of a datagram (IPv4: 65535 less both headers).
const MAX_BYTES: usize = 65_507;

/// Moves datagrams until the caller ends the flow, or nothing listens.
///
/// Which of the two loopback addresses a server uses is not known before it answers. So datagrams go to the IPv4
/// address first; when one comes back as undeliverable, it is sent again to the IPv6 address, which is used from then
/// on.
///
/// # Errors
/// `port_unreachable`: nothing listens on either address; `invalid_argument`: a datagram that is too large.
pub async fn carry(
    port: u16,
    first: PortFrame,
    mut frames: impl Frames,
    answers: &Answers,
) -> Result<(), Problem> {
    let socket = socket(port, false).await?;
    let mut flow = Flow { port, socket, settled: false, last: Bytes::new() };
    if !first.data.is_empty() {
        flow.send(first.data).await?;
    }
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        tokio::select! {
            received = flow.socket.recv(&mut buffer) => match received {
                Ok(count) => {
                    flow.settled = true;
                    let data = Bytes::copy_from_slice(&buffer[..count]);
                    if answers.send(Ok(PortFrame { data, ..PortFrame::default() })).await.is_err() {
                        return Ok(());
                    }
                }
                Err(err) => flow.refused(err).await?,
            },
            frame = frames.next() => match frame {
                Some(Ok(frame)) if !frame.eof => flow.send(frame.data).await?,
                _ => return Ok(()),
            },
        }
    }
}

struct Flow {
    port: u16,
    socket: UdpSocket,
    /// Whether the address is final: the server has answered from it, or the other one was tried before.
    settled: bool,
    last: Bytes,
}

impl Flow {
    async fn send(&mut self, data: Bytes) -> Result<(), Problem> {
        if data.len() > MAX_BYTES {
            let detail = format!("a datagram of {} bytes is larger than {MAX_BYTES}", data.len());
            return Err(Problem::new(Code::InvalidArgument, detail).with("field", "data"));
        }
        self.last = data;
        match self.socket.send(&self.last).await {
            Ok(_) => Ok(()),
            Err(err) => self.refused(err).await,
        }
    }

    /// Switches to the other address, once, and sends again what this one has refused.
    async fn refused(&mut self, err: io::Error) -> Result<(), Problem> {
        if err.kind() != io::ErrorKind::ConnectionRefused || self.settled {
            return Err(unreachable(self.port, &err));
        }
        self.settled = true;
        self.socket = socket(self.port, true).await.map_err(|_| unreachable(self.port, &err))?;
        match self.socket.send(&self.last).await {
            Ok(_) => Ok(()),
            Err(_) => Err(unreachable(self.port, &err)),
        }
    }
}
