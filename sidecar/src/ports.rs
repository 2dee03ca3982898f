//! Connections to servers that listen in the sandbox.
//!
//! The sidecar shares the target's network namespace on every backend, so it dials loopback addresses itself.
//!
//! # Layout
//! - `dial`: connects to a port, or reports why that fails.
//! - `stream`, `datagrams`: move bytes between a connection and a call, at the pace of the slower one.

pub mod datagrams;
pub mod dial;
pub mod stream;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::Stream;
use tonic::Status;
use wire::agent::PortFrame;
use wire::{Code, Problem};

/// Connections at a time. A slow reader leaves three messages in memory, of which the HTTP/2 send buffer (128 KiB)
/// holds one large or many small ones. With `FEW` connections that had large messages, all flows, and the rest with
/// small messages, that is 57 MiB: less than the 64 MiB that are set aside for the sidecar.
const MAX_CONNECTIONS: usize = 256;
/// Flows of datagrams among the connections; a flow's messages are as large as the datagrams that the server sends.
const MAX_FLOWS: usize = 64;
/// Up to this number of open connections, each may move large messages.
const FEW: usize = 32;
/// Bytes in one message: under gVisor most of the cost is per message.
const LARGE_MESSAGE_BYTES: usize = 128 << 10;
const SMALL_MESSAGE_BYTES: usize = 16 << 10;

/// Frames from a caller; an error means that the caller is gone.
pub trait Frames: Stream<Item = Result<PortFrame, Status>> + Unpin + Send {}
impl<T: Stream<Item = Result<PortFrame, Status>> + Unpin + Send> Frames for T {}

/// Frames to the caller.
pub type Answers = mpsc::Sender<Result<PortFrame, Status>>;

/// Which ports may be dialled, and how many connections there may be. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ports {
    own: Arc<[u16]>,
    places: Arc<Semaphore>,
    flows: Arc<Semaphore>,
}

/// The permits of one connection, given back when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Semaphore>,
    _connection: OwnedSemaphorePermit,
    _flow: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// How many bytes a message from the server may hold at this moment. Large messages that were sent while
    /// connections were few stay large when there are many; so never more than `FEW` connections hold large ones.
    pub fn message_bytes(&self) -> usize {
        if self.is_one_of_few() { LARGE_MESSAGE_BYTES } else { SMALL_MESSAGE_BYTES }
    }

    /// Whether this connection may hold much memory, as a leg does: less than three large messages, but for as long as
    /// it lives.
    pub fn is_one_of_few(&self) -> bool {
        MAX_CONNECTIONS - self.places.available_permits() <= FEW
    }
}

impl Ports {
    /// Allows all ports but `own`: the platform's own, on which sidecar and relay listen.
    pub fn new(own: &[u16]) -> Self {
        let [places, flows] = [MAX_CONNECTIONS, MAX_FLOWS].map(|most| Arc::new(Semaphore::new(most)));
        Self { own: own.into(), places, flows }
    }

    /// Returns the port as a number if it may be dialled.
    ///
    /// # Errors
    /// `invalid_argument`: the port is out of range. `permission_denied`: it is the platform's own.
    pub fn check(&self, port: u32) -> Result<u16, Problem> {
        let number = u16::try_from(port).ok().filter(|number| *number != 0).ok_or_else(|| {
            let detail = format!("port {port} is not within 1 and 65535");
            Problem::new(Code::InvalidArgument, detail).with("field", "port")
        })?;
        if self.own.contains(&number) {
            let detail = format!("port {port} is the platform's own");
            return Err(Problem::new(Code::PermissionDenied, detail).with("port", port));
        }
        Ok(number)
    }

    /// Takes the permits of one connection, or of one flow of `datagrams`.
    ///
    /// # Errors
    /// `capacity_unavailable`: all are taken.
    pub fn place(&self, datagrams: bool) -> Result<Place, Problem> {
        Ok(Place {
            places: Arc::clone(&self.places),
            _connection: taken(&self.places, MAX_CONNECTIONS, "connections to ports")?,
            _flow: datagrams
                .then(|| taken(&self.flows, MAX_FLOWS, "flows of datagrams to ports"))
                .transpose()?,
        })
    }
}

fn taken(places: &Arc<Semaphore>, most: usize, what: &str) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(places).try_acquire_owned().map_err(|_| {
        let detail = format!("{most} {what} of the sandbox are open, which is the limit; close some");
        Problem::new(Code::CapacityUnavailable, detail).with("limit", most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_but_nought_the_own_one_and_those_beyond_the_last_may_be_dialled() {
        let ports = Ports::new(&[7070, 3128]);
        for (port, expected) in [
            (0, Err(Code::InvalidArgument)),
            (1, Ok(1)),
            (7070, Err(Code::PermissionDenied)),
            (3128, Err(Code::PermissionDenied)),
            (65_535, Ok(65_535)),
            (65_536, Err(Code::InvalidArgument)),
            (u32::MAX, Err(Code::InvalidArgument)),
        ] {
            assert_eq!(ports.check(port).map_err(|problem| problem.code), expected, "{port}");
        }
        assert_eq!(Ports::new(&[]).check(7070), Ok(7070));
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let ports = Ports::new(&[]);
        let mut held: Vec<_> = (0..MAX_FLOWS).map(|_| ports.place(true).unwrap()).collect();
        assert_eq!(ports.place(true).unwrap_err().code, Code::CapacityUnavailable);
        held.extend((MAX_FLOWS..MAX_CONNECTIONS).map(|_| ports.place(false).unwrap()));
        assert_eq!(ports.place(false).unwrap_err().code, Code::CapacityUnavailable);
        drop(held);
        assert!(ports.place(true).is_ok());
    }

    #[test]
    fn one_of_many_holds_little_and_all_together_less_than_is_set_aside() {
        let ports = Ports::new(&[]);
        let mut held: Vec<_> = (0..FEW).map(|_| ports.place(false).unwrap()).collect();
        assert_eq!(held[0].message_bytes(), LARGE_MESSAGE_BYTES);
        held.push(ports.place(false).unwrap());
        assert!(held.iter().all(|place| place.message_bytes() == SMALL_MESSAGE_BYTES));
        held.pop();
        assert_eq!(held[0].message_bytes(), LARGE_MESSAGE_BYTES);
        let (sent, datagram) = (128 << 10, 64 << 10);
        let others = MAX_CONNECTIONS - FEW - MAX_FLOWS;
        let all = FEW * (sent + 2 * LARGE_MESSAGE_BYTES)
            + MAX_FLOWS * (sent + 3 * datagram)
            + others * (sent + 2 * SMALL_MESSAGE_BYTES);
        assert!(all < 64 << 20, "{all}");
    }
}
