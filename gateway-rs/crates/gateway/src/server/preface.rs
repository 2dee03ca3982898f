use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The first bytes of an HTTP/2 client (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Room for an ordinary head, so that the first read is usually the only one.
const FIRST_READ_BYTES: usize = 1024;

/// The protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Reads until the protocol is known; returns it with the bytes that were read. The caller sets the timeout
/// (hyper-util's own detection is not used since it waits for ever).
///
/// # Errors
/// When the client disconnects before.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Protocol, Bytes)> {
    let mut bytes = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(protocol) = protocol(&bytes) {
            return Ok((protocol, bytes.freeze()));
        }
    }
}

/// Returns `None` while both are possible.
fn protocol(bytes: &[u8]) -> Option<Protocol> {
    if bytes.starts_with(HTTP2_PREFACE) {
        return Some(Protocol::Http2);
    }
    (!HTTP2_PREFACE.starts_with(bytes)).then_some(Protocol::Http1)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    #[tokio::test]
    async fn the_protocol_is_known_as_soon_as_it_can_be_and_nothing_is_lost() {
        for (chunks, expected) in [
            (vec!["POST /v1"], Protocol::Http1),
            (vec!["P", "OST"], Protocol::Http1),
            (vec!["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "rest"], Protocol::Http2),
            (vec!["PRI * HT", "TP/2.0\r\n\r\nSM\r\n\r\nmore"], Protocol::Http2),
            (vec!["PRI * HTTP/1.1"], Protocol::Http1),
        ] {
            let mut mock = chunks.iter().fold(Chunks::default(), Chunks::then);
            let (protocol, bytes) = read(&mut mock).await.unwrap();
            assert_eq!(protocol, expected, "{chunks:?}");
            assert!(chunks.concat().as_bytes().starts_with(&bytes));
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_first_is_an_error() {
        assert!(read(&mut Chunks::default().then(&"PRI")).await.is_err());
    }

    /// A reader that returns one chunk per call.
    #[derive(Default)]
    struct Chunks(std::collections::VecDeque<&'static str>);

    impl Chunks {
        fn then(mut self, chunk: &&'static str) -> Self {
            self.0.push_back(chunk);
            self
        }
    }

    impl AsyncRead for Chunks {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buf.put_slice(self.0.pop_front().unwrap_or_default().as_bytes());
            Poll::Ready(Ok(()))
        }
    }
}
