//! Connections to what listens in the sandbox.
//!
//! The sidecar shares the target's network namespace on every backend, so it dials loopback addresses itself.
//!
//! # Layout
//! - `dial`: which port may be dialled, and the connection or the reason why there is none.
//! - `stream`, `datagrams`: bytes between a connection and a call, at the pace of the slower one.

pub mod datagrams;
pub mod dial;
pub mod stream;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::Stream;
use tonic::Status;
use wire::agent::PortFrame;
use wire::{Code, Problem};

/// Connections at one time: each holds a descriptor and about 384 KiB while its reader is slow, 96 MiB in all.
const MAX_CONNECTIONS: usize = 256;

/// What comes from a caller; an error means that it is gone.
pub trait Frames: Stream<Item = Result<PortFrame, Status>> + Unpin + Send {}
impl<T: Stream<Item = Result<PortFrame, Status>> + Unpin + Send> Frames for T {}

/// What goes back to it.
pub type Answers = mpsc::Sender<Result<PortFrame, Status>>;

/// What may be dialled, and how much of it at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ports {
    own: Option<u16>,
    places: Arc<Semaphore>,
}

impl Ports {
    /// All ports but the sidecar's own, where it has one.
    pub fn new(own: Option<u16>) -> Self {
        Self { own, places: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }

    /// The port as a number that may be dialled.
    ///
    /// # Errors
    /// `invalid_argument`: out of range. `permission_denied`: the sidecar's own.
    pub fn check(&self, port: u32) -> Result<u16, Problem> {
        let number = u16::try_from(port).ok().filter(|number| *number != 0).ok_or_else(|| {
            let detail = format!("port {port} is not within 1 and 65535");
            Problem::new(Code::InvalidArgument, detail).with("field", "port")
        })?;
        if self.own == Some(number) {
            let detail = format!("port {port} is the platform's own");
            return Err(Problem::new(Code::PermissionDenied, detail).with("port", port));
        }
        Ok(number)
    }

    /// A place for one connection, given back when dropped.
    ///
    /// # Errors
    /// `capacity_unavailable`: all are taken.
    pub fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let detail =
                format!("{MAX_CONNECTIONS} connections to ports of the sandbox are open, no more are made");
            Problem::new(Code::CapacityUnavailable, detail).with("limit", MAX_CONNECTIONS)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_but_nought_the_own_one_and_those_beyond_the_last_may_be_dialled() {
        let ports = Ports::new(Some(7070));
        for (port, expected) in [
            (0, Err(Code::InvalidArgument)),
            (1, Ok(1)),
            (7070, Err(Code::PermissionDenied)),
            (65_535, Ok(65_535)),
            (65_536, Err(Code::InvalidArgument)),
            (u32::MAX, Err(Code::InvalidArgument)),
        ] {
            assert_eq!(ports.check(port).map_err(|problem| problem.code), expected, "{port}");
        }
        assert_eq!(Ports::new(None).check(7070), Ok(7070));
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let ports = Ports::new(None);
        let held: Vec<_> = (0..MAX_CONNECTIONS).map(|_| ports.place().unwrap()).collect();
        assert_eq!(ports.place().unwrap_err().code, Code::CapacityUnavailable);
        drop(held);
        assert!(ports.place().is_ok());
    }
}
