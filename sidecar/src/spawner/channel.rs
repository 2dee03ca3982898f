//! The spawner's end of the socket.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::frame::{HEADER_BYTES, Order, Report, frame_length};
use crate::sys;

const CHUNK_BYTES: usize = 16 << 10;
/// An empty buffer larger than this is freed.
const KEPT_BYTES: usize = 64 << 10;

/// Sends and receives frames. Bounded: a frame that is too long ends the connection.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UnixStream,
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Channel {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, bytes: Vec::new(), descriptors: VecDeque::new() }
    }

    /// Sends a report; blocks until the sidecar has read enough, which it always does.
    pub(super) fn send(&mut self, report: &Report) -> io::Result<()> {
        self.socket.write_all(&report.encode())
    }

    /// Sends two reports as one message.
    pub(super) fn send_both(&mut self, first: &Report, second: &Report) -> io::Result<()> {
        self.socket.write_all(&[first.encode(), second.encode()].concat())
    }

    /// Reads one message without waiting; returns whether there was one.
    ///
    /// # Errors
    /// The sidecar is gone (`UnexpectedEof`), or the connection broke.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK_BYTES];
        match sys::receive(self.socket.as_fd(), &mut chunk, &mut self.descriptors) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.bytes.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            Err(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(err) => Err(err),
        }
    }

    /// The next complete order.
    ///
    /// # Errors
    /// The bytes are not a valid order, so the start of the next one is unknown.
    pub(super) fn next(&mut self) -> io::Result<Option<Order>> {
        let malformed = |_| io::Error::from(io::ErrorKind::InvalidData);
        let Some(length) = frame_length(&self.bytes).map_err(malformed)? else {
            return Ok(None);
        };
        let Some(body) = self.bytes.get(HEADER_BYTES..length) else {
            return Ok(None);
        };
        let order = Order::decode(body).map_err(malformed)?;
        self.bytes.drain(..length);
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        Ok(Some(order))
    }

    /// The `COUNT` descriptors of the order that `next` returned last. They came with its first bytes, and orders
    /// arrive in sequence, so they are the oldest ones.
    ///
    /// # Errors
    /// They did not arrive: this process is out of descriptors.
    pub(super) fn descriptors<const COUNT: usize>(&mut self) -> io::Result<[OwnedFd; COUNT]> {
        let oldest: Vec<OwnedFd> = self.descriptors.drain(..COUNT.min(self.descriptors.len())).collect();
        oldest.try_into().map_err(|_| io::Error::other("the descriptors of an order are missing"))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_out_whole_however_they_arrive() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(theirs);
        let bytes = [Order::Ping { nonce: 1 }.encode(), Order::Kill { id: 2 }.encode()].concat();
        let mut seen = Vec::new();
        for byte in bytes {
            ours.write_all(&[byte]).unwrap();
            assert!(channel.fill().unwrap());
            seen.extend(channel.next().unwrap());
        }
        assert_eq!(seen, [Order::Ping { nonce: 1 }, Order::Kill { id: 2 }]);
    }

    #[test]
    fn a_closed_peer_and_a_malformed_frame_are_errors() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(theirs);
        ours.write_all(&[1, 0, 0, 0, 99]).unwrap();
        channel.fill().unwrap();
        assert_eq!(channel.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(ours);
        assert_eq!(channel.fill().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn missing_descriptors_are_an_error() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        assert!(Channel::new(theirs).descriptors::<3>().is_err());
    }
}
