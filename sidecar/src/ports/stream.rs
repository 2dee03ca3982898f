//! TCP: each direction ends by itself, so that a half-closed connection works as it does without us.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_stream::StreamExt;
use wire::Problem;
use wire::agent::PortFrame;

use super::dial::unreachable;
use super::{Answers, Frames};

/// Bytes in one message: under gVisor most of its cost is the message, and everybody whose reader is slow holds three.
const CHUNK_BYTES: usize = 128 << 10;
/// A buffer with less room is not worth a read.
const LEAST_BYTES: usize = 32 << 10;

/// How the way to the server ended.
enum Sent<F> {
    /// All of it was delivered.
    All,
    /// The server takes nothing more.
    Refused(F),
    /// The caller is gone.
    Gone,
}

/// Moves bytes until both directions have ended, or one of the two has broken the connection.
///
/// # Errors
/// `port_unreachable`: the server broke it.
pub async fn carry(
    port: u16,
    socket: TcpStream,
    first: PortFrame,
    frames: impl Frames,
    answers: &Answers,
) -> Result<(), Problem> {
    let (read, write) = socket.into_split();
    let mut up = std::pin::pin!(send(write, first, frames));
    let mut down = std::pin::pin!(receive(port, read, answers));
    tokio::select! {
        sent = &mut up => match sent {
            Sent::All => down.await,
            Sent::Gone => Ok(()),
            // What it said before that is still on its way, and how it ended is told there.
            Sent::Refused(frames) => tokio::select! {
                outcome = &mut down => outcome,
                () = discard(frames) => Ok(()),
            },
        },
        outcome = &mut down => {
            if outcome.is_ok() {
                up.await;
            }
            outcome
        }
    }
}

async fn send<F: Frames>(mut write: OwnedWriteHalf, first: PortFrame, mut frames: F) -> Sent<F> {
    let mut frame = first;
    loop {
        if write.write_all(&frame.data).await.is_err() {
            return Sent::Refused(frames);
        }
        if frame.eof {
            // A peer that is gone already needs no end.
            let _ = write.shutdown().await;
            return Sent::All;
        }
        frame = match frames.next().await {
            Some(Ok(frame)) => frame,
            // Only a message ends a direction: a call that is given up looks like messages that ended.
            Some(Err(_)) | None => return Sent::Gone,
        };
    }
}

async fn receive(port: u16, mut read: OwnedReadHalf, answers: &Answers) -> Result<(), Problem> {
    let mut buffer = BytesMut::new();
    loop {
        if buffer.capacity() < LEAST_BYTES {
            buffer.reserve(CHUNK_BYTES);
        }
        let count = read.read_buf(&mut buffer).await.map_err(|err| unreachable(port, &err))?;
        let frame = PortFrame { data: buffer.split().freeze(), eof: count == 0, ..PortFrame::default() };
        if answers.send(Ok(frame)).await.is_err() || count == 0 {
            return Ok(());
        }
    }
}

/// Takes what nobody wants any more, so that the caller is not held up; ends only when the caller is gone.
async fn discard(mut frames: impl Frames) {
    loop {
        match frames.next().await {
            Some(Ok(_)) => {}
            None => return std::future::pending().await,
            Some(Err(_)) => return,
        }
    }
}
