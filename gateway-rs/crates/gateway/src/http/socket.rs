use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Interval, MissedTickBehavior, timeout};
use wire::{Code, Problem};

use super::error::retry_after_ms;

/// Interval of pings to the client, which answers them with pongs.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// A client that sends nothing for this long, not even a pong, counts as gone.
const SILENCE: Duration = Duration::from_secs(15);

/// A client that takes nothing for this long is disconnected, even if it sends pongs: it holds a permit.
const STALL: Duration = Duration::from_secs(30);

/// How long the gateway then tries to send it the reason, in case it reads on. The kernel's timeout is longer than
/// both together (`server::UNHEARD`).
const PROBLEM_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the client's side of a close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Close codes (RFC 6455 section 7.4.1, and 1012 of its registry: the service restarts, connect again).
pub(crate) const NORMAL: u16 = 1000;
pub(crate) const MALFORMED: u16 = 1002;
pub(crate) const NO_TEXT: u16 = 1007;
pub(crate) const TOO_SLOW: u16 = 1008;
pub(crate) const TOO_LARGE: u16 = 1009;
pub(crate) const RESTARTS: u16 = 1012;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    Binary(Bytes),
    Text(Utf8Bytes),
}

/// Why nothing more is read from a client or sent to it.
#[derive(Debug)]
pub(crate) enum Gone {
    /// It closed, broke off, or fell silent: there is no client to answer.
    Left,
    /// It broke the protocol, or takes nothing; it gets this problem and is closed with this code.
    Wrong(Box<Problem>, u16),
}

/// Limits a socket: the size of its messages, and the memory that it takes while it is idle.
pub(crate) fn bounded(upgrade: WebSocketUpgrade, max_message_bytes: usize) -> WebSocketUpgrade {
    upgrade
        .max_message_size(max_message_bytes)
        .max_frame_size(max_message_bytes)
        .read_buffer_size(32 << 10)
        // Every message is sent at once: its sender waits until it is.
        .write_buffer_size(0)
}

/// Splits a socket into its two directions, each for a loop of its own.
pub(crate) fn split(socket: WebSocket) -> (Reader, Writer) {
    let (sink, stream) = socket.split();
    let mut pings = tokio::time::interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    (Reader { stream }, Writer { sink, pings, stall: STALL })
}

/// The direction from the client.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: SplitStream<WebSocket>,
}

impl Reader {
    /// Returns the next message; pings and pongs only show that the client is alive.
    ///
    /// # Cancel safety
    /// Cancel safe, but silence is measured from the latest call.
    pub(crate) async fn next(&mut self) -> Result<ClientMessage, Gone> {
        loop {
            match timeout(SILENCE, self.stream.next()).await {
                Ok(Some(Ok(Message::Binary(data)))) => return Ok(ClientMessage::Binary(data)),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(ClientMessage::Text(text)),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Err(error))) => return Err(Gone::of(&error)),
                Ok(Some(Ok(Message::Close(_))) | None) | Err(_) => return Err(Gone::Left),
            }
        }
    }
}

impl Gone {
    fn of(error: &axum::Error) -> Self {
        use tungstenite::Error;
        use tungstenite::error::ProtocolError;
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Error>());
        let (code, close) = match cause {
            Some(Error::Capacity(_)) => (Code::PayloadTooLarge, TOO_LARGE),
            Some(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => return Self::Left,
            Some(Error::Utf8(_)) => (Code::InvalidArgument, NO_TEXT),
            Some(Error::Protocol(_)) => (Code::InvalidArgument, MALFORMED),
            _ => return Self::Left,
        };
        Self::Wrong(Box::new(Problem::new(code, format!("a message cannot be read: {error}"))), close)
    }
}

/// The direction to the client.
#[derive(Debug)]
pub(crate) struct Writer {
    sink: SplitSink<WebSocket, Message>,
    pings: Interval,
    stall: Duration,
}

impl Writer {
    /// Completes when it is time for a ping.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ping_is_due(&mut self) {
        self.pings.tick().await;
    }

    pub(crate) async fn ping(&mut self) -> Result<(), Gone> {
        self.send(Message::Ping(Bytes::new())).await
    }

    /// Sends a message and waits until the socket has taken it; waits for a slow reader, but not for ever.
    ///
    /// # Errors
    /// The client has gone, or is too slow; then the problem is the last message to send.
    ///
    /// # Cancel safety
    /// Not cancel safe: the message may be lost. The socket stays usable.
    pub(crate) async fn send(&mut self, message: Message) -> Result<(), Gone> {
        match timeout(self.stall, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Err(_) if self.stall == STALL => {
                self.stall = PROBLEM_TIMEOUT;
                Err(Gone::Wrong(Box::new(too_slow()), TOO_SLOW))
            }
            Ok(Err(_)) | Err(_) => Err(Gone::Left),
        }
    }

    /// Awaits `task` and pings meanwhile, since it may take longer than a client tolerates silence.
    pub(crate) async fn pinging<T>(&mut self, task: impl Future<Output = T>) -> Result<T, Gone> {
        let mut task = std::pin::pin!(task);
        loop {
            tokio::select! {
                biased;
                done = task.as_mut() => return Ok(done),
                () = self.ping_is_due() => self.ping().await?,
            }
        }
    }

    /// Closes gracefully: sends a close frame and waits briefly for the client's.
    pub(crate) async fn close(mut self, mut reader: Reader, code: u16, reason: &'static str) {
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        let closing = async {
            if self.sink.send(Message::Close(Some(frame))).await.is_ok() {
                while let Some(Ok(_)) = reader.stream.next().await {}
            }
        };
        drop(timeout(CLOSE_TIMEOUT, closing).await);
    }
}

/// The last message where there is no result: the reason.
pub(crate) fn problem(problem: &Problem, request_id: &str) -> Message {
    let retry_after_ms = retry_after_ms(problem.code);
    let mut body = problem.to_json(request_id, retry_after_ms);
    // Overwrites the problem's own `type`, the URN of its code; `code` has that too.
    body["type"] = "problem".into();
    Message::text(body.to_string())
}

fn too_slow() -> Problem {
    let detail = format!(
        "this client took nothing for {} s and was cut off: read all the time, or connect again when you read",
        STALL.as_secs()
    );
    Problem::new(Code::StreamInterrupted, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_problem_keeps_everything_but_its_type() {
        let message = problem(&Problem::new(Code::Draining, "going").with("a", 1), "req-1");
        let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        assert_eq!((&message["type"], &message["code"]), (&json!("problem"), &json!("draining")));
        assert_eq!((&message["request_id"], &message["details"]["a"]), (&json!("req-1"), &json!("1")));
    }
}
