use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use wire::Problem;
use wire::agent::StdinChunk;
use wire::agent::agent_client::AgentClient;

use crate::call::authorized;
use crate::http::fields;
use crate::upstream::{self, Channel, Loss};

/// How much stdin a client may have sent that was not yet acknowledged (contract: attach).
const WINDOW_BYTES: usize = 1 << 20;

/// What a message costs beside its data, so that empty ones are bounded too.
const MESSAGE_BYTES: usize = 32;

/// Room for a full window of messages of 64 bytes; the keys of a terminal are taken as they come.
const MAX_PERMITS: usize = WINDOW_BYTES + (16 << 10) * MESSAGE_BYTES;

/// How much of its input the command has taken, for the client; only the latest value counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) taken: u64,
    /// Why nothing more is taken.
    pub(super) closed: Option<Problem>,
}

/// The client's end of the queue of input.
#[derive(Debug)]
pub(super) struct Stdin {
    window: Arc<Semaphore>,
    writes: mpsc::UnboundedSender<Write>,
    controls: u64,
}

/// The command's end of the queue of input.
#[derive(Debug)]
pub(super) struct Writes {
    writes: mpsc::UnboundedReceiver<Write>,
    progress: watch::Sender<Progress>,
    handled: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Write {
    offset: u64,
    data: Bytes,
    eof: bool,
    /// Number of signals and sizes that came before it.
    after: u64,
    /// Its share of the window; the queue itself has no other bound.
    _share: OwnedSemaphorePermit,
}

/// Creates the queue. `handled` counts the signals and sizes that were handled: what is typed after a size was set must
/// find that size.
pub(super) fn stdin(handled: watch::Receiver<u64>) -> (Stdin, Writes, watch::Receiver<Progress>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (progress, progress_receiver) = watch::channel(Progress::default());
    let window = Arc::new(Semaphore::new(MAX_PERMITS));
    let writes = Writes { writes: receiver, progress, handled };
    (Stdin { window, writes: sender, controls: 0 }, writes, progress_receiver)
}

impl Stdin {
    /// Counts a signal or size: what is written from here on waits until it was handled.
    pub(super) fn control(&mut self) {
        self.controls += 1;
    }

    /// Queues a write; never waits.
    ///
    /// # Errors
    /// `invalid_argument` for a client that writes on although too much of its input was not taken yet.
    pub(super) fn write(&self, offset: u64, data: Bytes, eof: bool) -> Result<(), Problem> {
        let cost = u32::try_from(data.len() + MESSAGE_BYTES).unwrap_or(u32::MAX);
        let Ok(share) = Arc::clone(&self.window).try_acquire_many_owned(cost) else {
            let detail = format!("more than {WINDOW_BYTES} bytes of stdin were sent and not yet taken");
            return Err(fields::invalid("stdin", detail));
        };
        // Without a receiver the relay is ending.
        let _gone = self.writes.send(Write { offset, data, eof, after: self.controls, _share: share });
        Ok(())
    }
}

impl Writes {
    /// Sends writes to the command, one after the other, until it is dropped.
    pub(super) async fn run(mut self, mut agent: AgentClient<Channel>, header: &HeaderValue, exec_id: &str) {
        while let Some(Write { offset, data, eof, after, _share: share }) = self.writes.recv().await {
            if self.progress.borrow().closed.is_some() {
                continue;
            }
            // Fails only while the relay ends, since then the sender is dropped.
            let _ = self.handled.wait_for(|handled| *handled >= after).await;
            let chunk = StdinChunk { exec_id: exec_id.to_owned(), offset, data, eof };
            match agent.write_stdin(authorized(chunk, header)).await {
                Ok(accepted) => {
                    let taken = accepted.into_inner().offset;
                    drop(share);
                    self.progress.send_modify(|progress| progress.taken = taken);
                }
                Err(status) => match upstream::of(&status) {
                    Loss::Answered(problem) => {
                        self.progress.send_modify(|progress| progress.closed = Some(problem));
                    }
                    // The direction to the client (`Down` in `relay`) finds the reason and reports it.
                    Loss::Unreachable(_) | Loss::Broken(_) => break,
                },
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_wait_for_our_word_is_refused() {
        let (stdin, _writes, _progress) = stdin(watch::channel(0).1);
        let piece = Bytes::from(vec![b'x'; 64 << 10]);
        let taken = (0..64).take_while(|n| stdin.write(n * (64 << 10), piece.clone(), false).is_ok()).count();
        assert!((16..32).contains(&taken), "{taken}");
    }

    #[test]
    fn empty_writes_are_bounded_too() {
        let (stdin, _writes, _progress) = stdin(watch::channel(0).1);
        let taken = (0..1_000_000).take_while(|_| stdin.write(0, Bytes::new(), false).is_ok()).count();
        assert!(taken < 100_000, "{taken}");
    }
}
