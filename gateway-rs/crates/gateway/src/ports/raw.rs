use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use http::HeaderValue;
use resolve::Route;
use serde::Deserialize;
use tokio::sync::mpsc;
use tonic::Streaming;
use wire::agent::PortFrame;
use wire::{Code, Problem};

use super::connection::Frames;
use crate::admission::Permit;
use crate::call::{Calls, Interrupted};
use crate::drain::Call;
use crate::http::socket::{self, ClientMessage, Gone, Reader, Writer};

/// Largest message of a client: a connection holds at most two of them and one on its way.
pub(super) const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// The message that ends one direction of a TCP connection.
const EOF: &str = r#"{"type":"eof"}"#;

/// A connection to a port as WebSocket messages: binary ones are bytes of a TCP stream, or one datagram each.
pub(super) struct Tunnel {
    pub(super) calls: Arc<Calls>,
    pub(super) route: Arc<Route>,
    pub(super) frames: Frames,
    pub(super) datagrams: bool,
    pub(super) request_id: HeaderValue,
    pub(super) _call: Call,
    pub(super) _place: Permit,
}

/// How a tunnel ends.
enum Ending {
    /// Both sides have sent everything.
    Done,
    /// The last message is this problem; the number is the close code.
    Problem(Box<Problem>, u16),
    /// The drain has expired.
    Expired,
    /// The client has gone.
    Left,
}

impl From<Gone> for Ending {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Wrong(problem, code) => Self::Problem(problem, code),
            Gone::Left => Self::Left,
        }
    }
}

/// A text message of a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlMessage {
    #[serde(rename = "type")]
    _kind: Kind,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Eof,
}

impl Tunnel {
    /// Moves bytes both ways until both sides have ended, or client, server, sandbox or this gateway ends the tunnel.
    pub(super) async fn run(self, socket: WebSocket) {
        let (mut reader, mut writer) = socket::split(socket);
        let Frames { up, mut down, guard } = self.frames;
        // Outlives the guard: the stream of a client that breaks off must not look like one that has ended.
        let open = up.clone();
        let (calls, route) = (&*self.calls, &self.route);
        let ending = tokio::select! {
            biased;
            () = calls.drain().expired() => Ending::Expired,
            ending = send(&mut reader, up, self.datagrams) => ending,
            ending = receive(calls, route, &mut down, &mut writer, self.datagrams) => {
                ending.unwrap_or_else(Ending::from)
            }
        };
        drop(guard);
        drop(open);
        let (code, reason) = match &ending {
            Ending::Left => return,
            Ending::Done => (socket::NORMAL, ""),
            Ending::Expired => (socket::RESTARTS, "this gateway is shutting down; connect again"),
            Ending::Problem(problem, code) => {
                calls.metrics().problem(problem.code);
                let request_id = self.request_id.to_str().unwrap_or_default();
                tracing::info!(
                    request_id,
                    code = problem.code.name(),
                    detail = problem.detail,
                    "port connection ended with a problem"
                );
                if writer.send(socket::problem(problem, request_id)).await.is_err() {
                    return;
                }
                (*code, "")
            }
        };
        writer.close(reader, code, reason).await;
    }
}

/// Forwards the client's messages to the server. Ends only when the client has gone or breaks the protocol.
async fn send(reader: &mut Reader, up: mpsc::Sender<PortFrame>, datagrams: bool) -> Ending {
    let mut up = Some(up);
    loop {
        let frame = match reader.next().await {
            Ok(ClientMessage::Binary(data)) => PortFrame { data, ..PortFrame::default() },
            Ok(ClientMessage::Text(text)) => match serde_json::from_str(&text) {
                Ok(ControlMessage { .. }) if !datagrams => PortFrame { eof: true, ..PortFrame::default() },
                _ => return wrong(format!("the text message {:?} is not {EOF}", shortened(&text))),
            },
            Err(gone) => return gone.into(),
        };
        let Some(open) = &up else { return wrong("a message came after the end".to_owned()) };
        let eof = frame.eof;
        // The call has ended; the other direction gets the reason.
        if open.send(frame).await.is_err() {
            return std::future::pending().await;
        }
        if eof {
            up = None;
        }
    }
}

/// Forwards the server's data to the client.
async fn receive(
    calls: &Calls,
    route: &Arc<Route>,
    down: &mut Streaming<PortFrame>,
    writer: &mut Writer,
    datagrams: bool,
) -> Result<Ending, Gone> {
    loop {
        let frame = tokio::select! {
            biased;
            frame = calls.interruptible(route, down.message()) => frame,
            () = writer.ping_is_due() => {
                writer.ping().await?;
                continue;
            }
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Ending::Done),
            Err(Interrupted::Expired) => return Ok(Ending::Expired),
            Err(interrupted) => {
                let problem = writer.pinging(interrupted.explain(calls, route)).await?;
                return Ok(Ending::Problem(problem.into(), socket::NORMAL));
            }
        };
        let eof = frame.eof;
        if datagrams || !frame.data.is_empty() {
            writer.send(Message::Binary(frame.data)).await?;
        }
        if eof {
            writer.send(Message::text(EOF)).await?;
        }
    }
}

fn wrong(detail: String) -> Ending {
    let problem = Problem::new(Code::InvalidArgument, detail).with("field", "message");
    Ending::Problem(problem.into(), socket::MALFORMED)
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
