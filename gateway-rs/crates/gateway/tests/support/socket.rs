//! A client's side of a WebSocket.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use http::Request;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{Started, token_of};

/// A WebSocket to a command.
#[derive(Debug)]
pub struct Socket {
    pub stream: WebSocketStream<TcpStream>,
}

/// A message of the gateway.
#[derive(Debug, PartialEq)]
pub enum Received {
    Output { kind: u8, offset: u64, data: Bytes },
    Text(Value),
    Closed(u16),
    Broken,
}

impl Started {
    /// Attaches to a command of sandbox `sb-1`.
    pub async fn attach(&self, exec_id: &str, query: &str) -> Socket {
        self.try_attach(exec_id, query).await.unwrap()
    }

    /// # Errors
    /// The status and the code of the problem that the gateway answered.
    pub async fn try_attach(&self, exec_id: &str, query: &str) -> Result<Socket, (u16, String)> {
        self.websocket(&format!("execs/{exec_id}/attach{query}")).await
    }

    /// Opens a WebSocket below sandbox `sb-1`.
    ///
    /// # Errors
    /// As `try_attach`.
    pub async fn websocket(&self, path: &str) -> Result<Socket, (u16, String)> {
        let request = format!("ws://{}/v1/sandboxes/sb-1/{path}", self.client.address);
        let mut request: Request<()> = request.into_client_request().unwrap();
        let token = format!("Bearer {}", token_of("sb-1", "alice", &["exec"]));
        request.headers_mut().insert("authorization", token.parse().unwrap());
        let stream = TcpStream::connect(self.client.address).await.unwrap();
        // Tests move the clock, so nothing may wait in the kernel for a timer there.
        stream.set_nodelay(true).unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((stream, _)) => Ok(Socket { stream }),
            Err(Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
                Err((response.status().as_u16(), problem["code"].as_str().unwrap_or_default().to_owned()))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Socket {
    /// Returns the next message, without pings; `None` when the connection is broken.
    pub async fn next_message(&mut self) -> Option<Message> {
        let heard = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    heard => return heard.and_then(Result::ok),
                }
            }
        };
        let heard = tokio::time::timeout(super::controlplane::LIMIT, heard).await.unwrap();
        if matches!(heard, Some(Message::Close(_))) {
            // Sends the close frame that answers it, which is only queued so far; the gateway may have gone already.
            drop(self.stream.flush().await);
        }
        heard
    }

    /// Returns the next message about a command.
    pub async fn next(&mut self) -> Received {
        match self.next_message().await {
            Some(Message::Binary(mut data)) => {
                let (kind, offset) = (data.get_u8(), data.get_u64());
                Received::Output { kind, offset, data }
            }
            Some(Message::Text(text)) => Received::Text(serde_json::from_str(&text).unwrap()),
            Some(Message::Close(frame)) => Received::Closed(frame.map_or(1005, |frame| frame.code.into())),
            _ => Received::Broken,
        }
    }

    /// Returns the next text message of a type; drops everything before it.
    pub async fn text(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await {
                Received::Text(value) if value["type"] == kind => return value,
                Received::Closed(_) | Received::Broken => panic!("closed before {kind}"),
                _ => {}
            }
        }
    }

    /// Returns all output, the last message, and the close code.
    pub async fn rest(&mut self) -> (Vec<u8>, Value, u16) {
        let (mut output, mut last) = (Vec::new(), Value::Null);
        loop {
            match self.next().await {
                Received::Output { data, .. } => output.extend_from_slice(&data),
                Received::Text(value) if value["type"] == "stdin" => {}
                Received::Text(value) => last = value,
                Received::Closed(code) => return (output, last, code),
                Received::Broken => panic!("broken after {last}"),
            }
        }
    }

    pub async fn stdin(&mut self, offset: u64, data: &[u8]) {
        let mut message = BytesMut::new();
        message.put_u8(0);
        message.put_u64(offset);
        message.put_slice(data);
        self.stream.send(Message::Binary(message.freeze())).await.unwrap();
    }

    pub async fn say(&mut self, text: &str) {
        self.stream.send(Message::text(text)).await.unwrap();
    }
}
