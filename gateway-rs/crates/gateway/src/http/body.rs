//! Request bodies. Those of execs are read whole, with limits on size, time and (over all calls) memory; those that
//! are forwarded are streamed, with a timeout for silence.

mod held;
mod timed;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::{Code, Problem};

pub(crate) use held::Held;
pub(crate) use timed::{BrokenOff, Timed};

/// A client that sends nothing for this long counts as gone (an estimate: a TCP retransmission takes seconds at most).
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// Timeout of a whole body, whatever its size: 32 MiB at 2.2 Mbit/s.
const WHOLE: Duration = Duration::from_secs(120);

/// How much of a body that was refused for its size is read and dropped, so that the client receives the refusal.
const DISCARD_BYTES: usize = 256 << 20;
const DISCARD: Duration = Duration::from_secs(10);

/// Larger bodies take memory from the shared budget; smaller ones are bounded by the number of calls.
const FREE_BYTES: usize = 64 << 10;

/// Memory budget for the larger bodies of all calls: 256 KiB each for 4096 calls in flight. In KiB, the unit of the
/// semaphore.
const BUDGET_KIB: usize = 1 << 20;

/// Reads bodies within the limits.
/// Cheap to clone; all clones share one budget.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    max_bytes: usize,
    /// How long a body may wait for memory.
    wait: Duration,
    budget_kib: Arc<Semaphore>,
}

/// A body that was read; its memory counts against the budget until `budget` is dropped.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: Bytes,
    pub(crate) budget: Budget,
}

/// A share of the budget; none for a small body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budget {
    _share: Option<Arc<OwnedSemaphorePermit>>,
}

impl Reader {
    pub(crate) fn new(max_bytes: usize, wait: Duration) -> Self {
        Self { max_bytes, wait, budget_kib: Arc::new(Semaphore::new(BUDGET_KIB)) }
    }

    /// Reads a whole body.
    ///
    /// # Errors
    /// `payload_too_large` naming the limit, `invalid_argument` when it breaks off or does not arrive in time,
    /// `capacity_unavailable` when there is no memory for it within the queue timeout.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read is dropped.
    pub(crate) async fn read(&self, mut body: Body) -> Result<Read, Problem> {
        let read = self.read_within(&mut body).await;
        if matches!(&read, Err(problem) if problem.code == Code::PayloadTooLarge) {
            discard(&mut body).await;
        }
        read
    }

    async fn read_within(&self, body: &mut Body) -> Result<Read, Problem> {
        // The announced size is that of the framing that the body is read with; a header may differ.
        let announced = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        self.fits(announced.unwrap_or(0))?;
        let budget = self.budget(announced.unwrap_or(0)).await?;
        let late = |_| broken(&format!("it did not arrive within {} s", WHOLE.as_secs()));
        let whole = self.collect(body, announced.is_none(), budget);
        tokio::time::timeout(WHOLE, whole).await.map_err(late)?
    }

    /// Bytes of the budget that larger bodies hold.
    pub(crate) fn held_bytes(&self) -> usize {
        BUDGET_KIB.saturating_sub(self.budget_kib.available_permits()) * 1024
    }

    async fn budget(&self, bytes: usize) -> Result<Budget, Problem> {
        if bytes <= FREE_BYTES {
            return Ok(Budget::default());
        }
        let kib = u32::try_from(bytes.div_ceil(1024).min(BUDGET_KIB)).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.budget_kib).acquire_many_owned(kib);
        match tokio::time::timeout(self.wait, share).await {
            Ok(Ok(share)) => Ok(Budget { _share: Some(Arc::new(share)) }),
            Ok(Err(_)) | Err(_) => Err(Problem::new(
                Code::CapacityUnavailable,
                format!("no memory for a body of {bytes} bytes: others hold all {BUDGET_KIB} KiB for bodies"),
            )),
        }
    }

    async fn collect(
        &self,
        body: &mut Body,
        mut unannounced: bool,
        mut budget: Budget,
    ) -> Result<Read, Problem> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk(body).await? {
            let bytes = whole.len() + chunk.len();
            self.fits(bytes)?;
            if unannounced && bytes > FREE_BYTES {
                // The size is unknown, so reserve for the largest body. All at once: two bodies that reserved in steps
                // could each wait for the rest of the other's memory.
                budget = self.budget(self.max_bytes).await?;
                unannounced = false;
            }
            // The common case: the body came with the headers, in one piece, and is not copied.
            if whole.is_empty() && body.is_end_stream() {
                return Ok(Read { bytes: chunk, budget });
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(Read { bytes: whole.freeze(), budget })
    }

    /// Returns the next piece of data; skips trailers.
    async fn chunk(&self, body: &mut Body) -> Result<Option<Bytes>, Problem> {
        loop {
            let silent = |_| broken(&format!("nothing came for {} s", SILENCE.as_secs()));
            let frame = tokio::time::timeout(SILENCE, body.frame()).await.map_err(silent)?;
            match frame {
                None => return Ok(None),
                Some(Err(e)) => return Err(broken(&e.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn fits(&self, bytes: usize) -> Result<(), Problem> {
        if bytes > self.max_bytes { Err(self.too_large()) } else { Ok(()) }
    }

    fn too_large(&self) -> Problem {
        Problem::new(Code::PayloadTooLarge, format!("the body is larger than {} bytes", self.max_bytes))
            .with("limit_bytes", self.max_bytes)
            .with("knob", "ROLLBOX_GATEWAY_MAX_BODY_BYTES")
    }
}

/// Reads and drops the rest of a body, within bounds. A connection that is closed while its client still sends is
/// reset, and the reset destroys the refusal on its way to the client.
pub(crate) async fn discard(body: &mut (impl http_body::Body<Data = Bytes> + Unpin)) {
    let all = async {
        let mut left_bytes = DISCARD_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            left_bytes = left_bytes.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left_bytes == 0 {
                return;
            }
        }
    };
    // A client that is too slow or sends too much only loses its answer.
    drop(tokio::time::timeout(DISCARD, all).await);
}

fn broken(why: &str) -> Problem {
    Problem::new(Code::InvalidArgument, format!("the body could not be read: {why}"))
}

#[cfg(test)]
mod tests;
