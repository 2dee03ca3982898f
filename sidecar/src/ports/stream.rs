//! TCP: each direction ends by itself, so that a half-closed connection works as it does without the sidecar between.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_stream::StreamExt;
use wire::agent::PortFrame;
use wire::{Code, Problem};

use super::dial::unreachable;
use super::{Answers, Frames, Place};
use crate::leg::{Awaited, Leg};

/// A buffer whose free space is less than a message's size divided by this gets new memory before the next read.
const LEAST_PART: usize = 4;

/// Bytes that are moved at once over a leg: under gVisor half as many cost nearly twice as much for the same data.
const LEG_BYTES: usize = 256 << 10;

/// How the direction to the server ended.
enum Sent<F> {
    /// All of it was delivered.
    All,
    /// The server takes no more data.
    Refused(F),
    /// The caller is gone.
    Gone,
}

/// Moves bytes until both directions have ended, or one of the two has broken the connection.
///
/// # Errors
/// `port_unreachable`: the server broke the connection. `stream_interrupted`: the leg broke.
pub async fn carry(
    port: u16,
    place: &Place,
    socket: TcpStream,
    first: PortFrame,
    frames: impl Frames,
    answers: &Answers,
    leg: Option<Awaited>,
) -> Result<(), Problem> {
    let (read, write) = socket.into_split();
    let mut up = std::pin::pin!(send(write, first, frames));
    let mut down = std::pin::pin!(receive(port, place, read, answers, leg));
    tokio::select! {
        sent = &mut up => match sent {
            Sent::All => down.await,
            Sent::Gone => Ok(()),
            // What the server sent before is still on its way, and the other direction reports how the connection
            // ended.
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
            // A peer that is gone needs no end of the stream.
            let _ = write.shutdown().await;
            return Sent::All;
        }
        frame = match frames.next().await {
            Some(Ok(frame)) => frame,
            // Only a message ends a direction: a call that is cancelled looks like a stream of messages at its end.
            Some(Err(_)) | None => return Sent::Gone,
        };
    }
}

async fn receive(
    port: u16,
    place: &Place,
    mut read: OwnedReadHalf,
    answers: &Answers,
    mut leg: Option<Awaited>,
) -> Result<(), Problem> {
    let mut buffer = BytesMut::new();
    loop {
        if place.is_one_of_few()
            && let Some(leg) = leg.as_mut().and_then(Awaited::take)
        {
            drop(buffer);
            return move_over(port, read, answers, leg).await;
        }
        let most = place.message_bytes();
        if buffer.capacity() > most {
            buffer = BytesMut::new();
        }
        if buffer.capacity() < most / LEAST_PART {
            buffer.reserve(most);
        }
        let count = read.read_buf(&mut buffer).await.map_err(|err| unreachable(port, &err))?;
        let frame = PortFrame { data: buffer.split().freeze(), eof: count == 0, ..PortFrame::default() };
        if answers.send(Ok(frame)).await.is_err() || count == 0 {
            return Ok(());
        }
    }
}

/// Moves the rest over the leg, through one buffer: under gVisor new memory costs more than filling it.
async fn move_over(
    port: u16,
    mut read: OwnedReadHalf,
    answers: &Answers,
    mut leg: Leg,
) -> Result<(), Problem> {
    if answers.send(Ok(PortFrame { moved: true, ..PortFrame::default() })).await.is_err() {
        return Ok(());
    }
    let broken = |err| {
        let detail = format!("the connection for the data of port {port} broke: {err}");
        Problem::new(Code::StreamInterrupted, detail)
    };
    let mut buffer = vec![0; LEG_BYTES];
    loop {
        let count = read.read(&mut buffer).await.map_err(|err| unreachable(port, &err))?;
        if count == 0 {
            leg.shutdown().await.map_err(broken)?;
            // A caller that is gone needs no end of the stream.
            let _ = answers.send(Ok(PortFrame { eof: true, ..PortFrame::default() })).await;
            return Ok(());
        }
        leg.write_all(&buffer[..count]).await.map_err(broken)?;
    }
}

/// Drops what the server does not take, so that the caller is not blocked; ends only when the caller is gone.
async fn discard(mut frames: impl Frames) {
    loop {
        match frames.next().await {
            Some(Ok(_)) => {}
            None => return std::future::pending().await,
            Some(Err(_)) => return,
        }
    }
}
