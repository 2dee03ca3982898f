//! Moves the bytes of one connection between its program and the link, at the pace of the slower one.

use std::future::poll_fn;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{Reason, SendStream};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::task::yield_now;
use wire::Gathered;

use super::asked::Outside;
use super::links::Opened;
use super::socks::GREETED_BYTES;

/// Bytes of one read: under gVisor most of the cost is per call.
const PIECE_BYTES: usize = 64 << 10;
/// A program that writes less than this at once may be about to write more.
const SMALL_BYTES: usize = 256;

/// Carries both directions until each has ended by itself. When one breaks, the program's connection is reset: a plain
/// end would make what was cut look like the whole.
/// `outside` was read of the program already.
pub(super) async fn carry(mut stream: TcpStream, outside: Outside, opened: Opened) {
    // Counted until the end of this function.
    let Opened { response, sent: mut link, counted: _counted } = opened;
    let (read, write) = stream.split();
    let known_bytes = if outside.greeting_bytes > 0 { GREETED_BYTES } else { 0 };
    let held = outside.read.freeze();
    let whole = async { tokio::try_join!(up(read, held, &mut link), down(response, known_bytes, write)) };
    if whole.await.is_err() {
        link.send_reset(Reason::CANCEL);
        // If that fails, the program sees a plain end.
        let _ = stream.set_zero_linger();
    }
}

/// From the program. A connection on which nothing comes has no buffer, and no share of the link's window.
async fn up(read: ReadHalf<'_>, mut held: Bytes, link: &mut SendStream<Bytes>) -> io::Result<()> {
    while !held.is_empty() {
        let piece = held.split_to(room(link).await?.min(held.len()));
        link.send_data(piece, false).map_err(|err| broken(&err))?;
    }
    // Its memory is given back: what follows is read into pieces of its own.
    drop(held);
    link.reserve_capacity(0);
    loop {
        tokio::select! {
            ready = read.readable() => ready?,
            reset = poll_fn(|cx| link.poll_reset(cx)) => return Err(broken(&reset)),
        }
        let room = room(link).await?;
        let mut piece = BytesMut::with_capacity(room.min(PIECE_BYTES));
        match read.try_read_buf(&mut piece) {
            Ok(0) => return link.send_data(Bytes::new(), true).map_err(|err| broken(&err)),
            Ok(read) => {
                link.send_data(piece.freeze(), false).map_err(|err| broken(&err))?;
                if read < SMALL_BYTES {
                    // Sent before the next read, which then finds all that the program has written meanwhile.
                    yield_now().await;
                }
            }
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(err) => return Err(err),
        }
        link.reserve_capacity(0);
    }
}

/// Waits until the link takes some bytes; returns how many.
async fn room(link: &mut SendStream<Bytes>) -> io::Result<usize> {
    link.reserve_capacity(PIECE_BYTES);
    while link.capacity() == 0 {
        match poll_fn(|cx| link.poll_capacity(cx)).await {
            Some(granted) => granted.map_err(|err| broken(&err))?,
            None => return Err(io::ErrorKind::BrokenPipe.into()),
        };
    }
    Ok(link.capacity())
}

/// To the program. The window opens only for what the program's socket has taken, in steps of a piece: small ones would
/// be pieces of their own, of many connections in one of the library's buffers. What comes before is taken from the
/// library at once, which ends the whole link at a number of small pieces that wait in it. The program has the first
/// `known_bytes` already.
async fn down(response: ResponseFuture, mut known_bytes: usize, mut write: WriteHalf<'_>) -> io::Result<()> {
    let response = response.await.map_err(|err| broken(&err))?;
    if !response.status().is_success() {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let (mut body, mut waiting, mut ended) = (response.into_body(), Gathered::default(), false);
    let mut taken = 0;
    loop {
        tokio::select! {
            // All that has come is written by one call.
            biased;
            piece = body.data(), if !ended => match piece {
                Some(piece) => {
                    let mut piece = piece.map_err(|err| broken(&err))?;
                    let known = known_bytes.min(piece.len());
                    piece.advance(known);
                    (known_bytes, taken) = (known_bytes - known, taken + known);
                    waiting.push(piece);
                }
                None => ended = true,
            },
            written = write.write_buf(&mut waiting), if waiting.has_remaining() => {
                taken += written?;
                if taken >= PIECE_BYTES || !waiting.has_remaining() {
                    body.flow_control().release_capacity(taken).map_err(|err| broken(&err))?;
                    taken = 0;
                }
            }
            else => return write.shutdown().await,
        }
    }
}

fn broken(err: &dyn std::fmt::Debug) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, format!("{err:?}"))
}
