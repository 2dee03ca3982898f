//! A stream that can be looked into: what has come already goes on together, since most of a message's cost is the
//! message.

use futures_util::FutureExt as _;
use tonic::{Status, Streaming};

/// Messages of a sidecar, at most one of which is held back.
pub(crate) struct Ahead<T> {
    messages: Streaming<T>,
    held: Option<Result<Option<T>, Status>>,
}

impl<T> From<Streaming<T>> for Ahead<T> {
    fn from(messages: Streaming<T>) -> Self {
        Self { messages, held: None }
    }
}

impl<T> Ahead<T> {
    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// The call failed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn message(&mut self) -> Result<Option<T>, Status> {
        match self.held.take() {
            Some(held) => held,
            None => self.messages.message().await,
        }
    }

    /// The next message if it has come already and `fits`; one that does not is the next.
    pub(crate) fn ready(&mut self, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let came = self.held.take().or_else(|| self.messages.message().now_or_never())?;
        match came {
            Ok(Some(message)) if fits(&message) => Some(message),
            other => {
                self.held = Some(other);
                None
            }
        }
    }
}
