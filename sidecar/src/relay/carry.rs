//! Moves the bytes of one connection between its program and the link, at the pace of the slower one.

use std::future::poll_fn;
use std::io::{self, IoSlice};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use h2::client::ResponseFuture;
use h2::{Reason, SendStream};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::links::Opened;

/// Bytes of one read: under gVisor most of the cost is per call.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces of one write.
const MAX_PIECES: usize = 16;

/// Carries both directions until each has ended by itself. When one breaks, the program's connection is reset: a plain
/// end would make what was cut look like the whole.
/// `held` was read of the program already.
pub(super) async fn carry(mut stream: TcpStream, held: Bytes, opened: Opened) {
    // Counted until the end of this function.
    let Opened { response, sent: mut link, counted: _counted } = opened;
    let (read, write) = stream.split();
    let whole = async { tokio::try_join!(up(read, held, &mut link), down(response, write)) };
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
            Ok(_) => link.send_data(piece.freeze(), false).map_err(|err| broken(&err))?,
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

/// To the program. The window opens only for what the program's socket has taken.
async fn down(response: ResponseFuture, mut write: WriteHalf<'_>) -> io::Result<()> {
    let response = response.await.map_err(|err| broken(&err))?;
    if !response.status().is_success() {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let mut body = response.into_body();
    while let Some(first) = body.data().await {
        let mut pieces = vec![first.map_err(|err| broken(&err))?];
        // What has come meanwhile is written by the same call.
        while pieces.len() < MAX_PIECES
            && let Some(Some(piece)) = body.data().now_or_never()
        {
            pieces.push(piece.map_err(|err| broken(&err))?);
        }
        let taken = pieces.iter().map(Bytes::len).sum();
        write_all(&mut write, &pieces).await?;
        body.flow_control().release_capacity(taken).map_err(|err| broken(&err))?;
    }
    write.shutdown().await
}

async fn write_all(write: &mut WriteHalf<'_>, pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = &mut slices[..];
    // Drops those that are empty.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match write.write_vectored(left).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut left, written),
        }
    }
    Ok(())
}

fn broken(err: &dyn std::fmt::Debug) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, format!("{err:?}"))
}
