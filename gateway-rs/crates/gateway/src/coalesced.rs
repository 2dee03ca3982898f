//! Look-ahead in a stream: messages that have already arrived are sent on as one larger message, since a message costs
//! much more than its bytes.

use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use tonic::{Status, Streaming};

/// Messages of a sidecar; holds at most one message back.
pub(crate) struct Coalesced<T, S = Streaming<T>> {
    messages: S,
    held: Option<Result<Option<T>, Status>>,
}

impl<T, S> From<S> for Coalesced<T, S> {
    fn from(messages: S) -> Self {
        Self { messages, held: None }
    }
}

impl<T, S: Stream<Item = Result<T, Status>> + Unpin> Coalesced<T, S> {
    /// Returns the next message; `None` at the end.
    ///
    /// # Errors
    /// The call failed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn message(&mut self) -> Result<Option<T>, Status> {
        match self.held.take() {
            Some(held) => held,
            None => self.messages.try_next().await,
        }
    }

    /// Returns the next message if it has already arrived and `fits`; never waits. Otherwise the next call returns it.
    pub(crate) fn ready(&mut self, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let came = self.held.take().or_else(|| self.messages.try_next().now_or_never())?;
        match came {
            Ok(Some(message)) if fits(&message) => Some(message),
            other => {
                self.held = Some(other);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_has_come_goes_together_and_what_does_not_fit_is_next() {
        let mut ahead = Coalesced::from(stream::iter([1, 2, 30, 4].map(Ok)));
        assert_eq!(ahead.message().await.unwrap(), Some(1));
        assert_eq!(ahead.ready(|next| *next < 10), Some(2));
        assert_eq!(ahead.ready(|next| *next < 10), None, "30 does not fit");
        assert_eq!(
            ahead.ready(|next| *next < 10),
            None,
            "it still does not fit, and no message overtakes it"
        );
        assert_eq!(ahead.message().await.unwrap(), Some(30));
        assert_eq!(ahead.ready(|_| true), Some(4));
        assert_eq!(ahead.ready(|_| true), None);
        assert_eq!(ahead.message().await.unwrap(), None, "the end follows the last message");
    }

    #[tokio::test]
    async fn what_has_not_come_is_not_waited_for_and_not_lost() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut ahead = Coalesced::from(stream::poll_fn(move |cx| receiver.poll_recv(cx)));
        assert_eq!(ahead.ready(|_| true), None);
        sender.send(Ok(1)).await.unwrap();
        assert_eq!(ahead.ready(|_| true), Some(1));
        sender.send(Ok(2)).await.unwrap();
        assert_eq!(ahead.message().await.unwrap(), Some(2));
    }

    #[tokio::test]
    async fn a_failure_comes_after_what_came_before_it() {
        let mut ahead = Coalesced::from(stream::iter([Ok(1), Err(Status::aborted("cut"))]));
        assert_eq!(ahead.ready(|_| true), Some(1));
        assert_eq!(ahead.ready(|_| true), None);
        assert_eq!(ahead.message().await.unwrap_err().message(), "cut");
    }
}
