//! A file worker that runs, as its caller has it: the sidecar's ends of its pipes, and the places that it takes.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use wire::Problem;

use super::frames::{HEADER_BYTES, Kind, parse};
use crate::spawner::frame::{Ending, OsBytes};
use crate::sys;

/// Size of a first read: many small frames, or the beginning of a large one.
const FIRST_READ_BYTES: usize = 8 << 10;

/// The places that a call has taken.
pub(super) type Held = Arc<Mutex<Vec<OwnedSemaphorePermit>>>;

/// The user and the directory that a file worker runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// Working directory, where relative paths begin; empty: the target's.
    pub cwd: OsBytes,
    /// Name or uid, optionally with a group; empty: the target's.
    pub user: String,
}

impl RunAs {
    /// Whether a worker that stays may serve this: its directory is none that may have been replaced meanwhile.
    pub(super) fn may_share(&self) -> bool {
        self.cwd == b"/"
    }
}

/// A running file worker. When this is dropped, the worker gets a moment to clean up and is then killed.
#[derive(Debug)]
pub(super) struct Worker {
    /// That of its reports.
    pub(super) id: u64,
    /// As the caller has named it.
    pub(super) user: String,
    pub(super) to: Sender,
    pub(super) from: Frames,
    pub(super) ended: oneshot::Receiver<Result<Ending, Problem>>,
    /// The places that its call has taken; they are free when the call is over, or the worker has ended.
    pub(super) held: Held,
}

impl Worker {
    /// Takes the places of the next call.
    pub(super) fn hold(&self, places: Vec<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// Returns the places of a call that is over.
    pub(super) fn release(&self) -> Vec<OwnedSemaphorePermit> {
        release(&self.held)
    }

    /// Whether all of a request is still in the pipe of a worker that has ended: it has not begun.
    pub(super) fn has_not_read(&self, request_bytes: usize) -> bool {
        sys::unread_bytes(self.to.as_fd()).is_ok_and(|unread| unread == request_bytes)
    }
}

/// A file worker's frames. Each read takes as much as has arrived.
#[derive(Debug)]
pub(super) struct Frames {
    from: Receiver,
    /// Received bytes that are not returned yet.
    read: BytesMut,
}

impl Frames {
    pub(super) fn new(from: Receiver) -> Self {
        Self { from, read: BytesMut::new() }
    }

    /// Whether nothing has come that was not returned.
    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// Gives back the memory that a call has needed.
    pub(super) fn shrink(&mut self) {
        self.read = BytesMut::new();
    }

    pub(super) async fn next(&mut self) -> io::Result<(Kind, Bytes)> {
        loop {
            let mut wanted = FIRST_READ_BYTES;
            if let Some(head) = self.read.first_chunk::<HEADER_BYTES>() {
                let (kind, length) = parse(*head).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                if self.read.len() >= HEADER_BYTES + length {
                    self.read.advance(HEADER_BYTES);
                    let payload = self.read.split_to(length).freeze();
                    if self.read.is_empty() {
                        // The next frame is usually as large.
                        self.read.reserve(HEADER_BYTES + length);
                    }
                    return Ok((kind, payload));
                }
                wanted = HEADER_BYTES + length - self.read.len();
            }
            self.read.reserve(wanted);
            if self.from.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Takes the places away.
pub(super) fn release(held: &Mutex<Vec<OwnedSemaphorePermit>>) -> Vec<OwnedSemaphorePermit> {
    std::mem::take(&mut held.lock().unwrap_or_else(PoisonError::into_inner))
}
