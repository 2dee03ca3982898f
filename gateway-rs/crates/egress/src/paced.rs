//! A connection whose reader lets other tasks run after a number of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use program::filtered::{Filter, Filtered};
use program::transport::Stream;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of one turn. HTTP/2 takes 10 for the smallest frame with data, so that one turn brings 6,600 of them at most.
const TURN_BYTES: usize = 64 << 10;

/// See the module. What has come in a turn is taken by its streams' tasks before the next turn, and not kept by the
/// HTTP/2 library, which ends the connection at a number of small frames that wait.
pub(crate) type Paced = Filtered<Stream, Turns>;

/// How much has come in the present turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn_bytes: usize,
}

/// A stream that is read in turns.
pub(crate) fn paced(stream: Stream) -> Paced {
    Filtered::by(Turns::default(), stream)
}

impl Filter for Turns {
    fn poll_read<S: AsyncRead>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = stream.poll_read(cx, buf);
        self.turn_bytes = if read.is_ready() { self.turn_bytes + buf.filled().len() - before } else { 0 };
        read
    }
}
