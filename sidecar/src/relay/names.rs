//! The resolver of the sandbox: it answers at once that there is no such name. Names are resolved outside, after the
//! policy has allowed them; a program that asked a resolver which does not answer would hang.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Larger datagrams are no queries that a resolver would take.
const MAX_QUERY_BYTES: usize = 4096;
const HEADER_BYTES: usize = 12;
const MAX_NAME_BYTES: usize = 255;
const MAX_LABEL_BYTES: u8 = 63;
/// Type and class, after the name.
const QUESTION_TAIL_BYTES: usize = 4;
/// First byte of the flags: it is a response; the kind of query; the caller wants recursion.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
/// Second byte: recursion is available, so that no library asks a resolver that "could", and NXDOMAIN.
const NO_SUCH_NAME: u8 = 0x80 | 3;
const MAX_STREAMS: usize = 16;
const STREAM_PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a query; `None` for what is no query with one question.
pub(super) fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let (header, rest) = query.split_at_checked(HEADER_BYTES)?;
    let flags = header[2];
    if flags & (RESPONSE | OPCODE) != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let question = rest.get(..name_bytes(rest)? + QUESTION_TAIL_BYTES)?;
    let mut answer = Vec::with_capacity(HEADER_BYTES + question.len());
    answer.extend_from_slice(&header[..2]);
    answer.extend_from_slice(&[RESPONSE | flags & RECURSION_DESIRED, NO_SUCH_NAME, 0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    Some(answer)
}

/// Any bytes are dropped, or answered with their own id and question, no such name, and no byte more than they have.
#[cfg(any(test, fuzzing))]
pub fn check_answer(query: &[u8]) {
    let Some(answer) = answer(query) else { return };
    assert!(answer.len() <= query.len());
    assert_eq!((&answer[..2], &answer[HEADER_BYTES..]), (&query[..2], &query[HEADER_BYTES..answer.len()]));
    assert_eq!(
        (answer[2] & !RECURSION_DESIRED, answer[3], &answer[4..HEADER_BYTES]),
        (RESPONSE, NO_SUCH_NAME, &[0, 1, 0, 0, 0, 0, 0, 0][..])
    );
    // An answer is no query, so two resolvers that hear one another are silent.
    assert_eq!(self::answer(&answer), None);
}

/// The length of the name at the beginning: labels, and an empty one at the end. A question's name has no pointers.
fn name_bytes(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < MAX_NAME_BYTES {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            label @ 1..=MAX_LABEL_BYTES => at += 1 + usize::from(label),
            _ => return None,
        }
    }
    None
}

/// Answers over UDP.
pub(super) async fn answer_datagrams(socket: UdpSocket) {
    let mut query = [0; MAX_QUERY_BYTES];
    loop {
        match socket.recv_from(&mut query).await {
            Ok((count, asker)) => {
                if let Some(answer) = answer(&query[..count]) {
                    // A datagram may be lost; the asker repeats its query.
                    let _ = socket.try_send_to(&answer, asker);
                }
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Answers over TCP.
pub(super) async fn answer_streams(listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_STREAMS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        tokio::spawn(async move {
            let mut stream = stream;
            // What is malformed, or too slow, is closed.
            while let Ok(Some(())) = timeout(STREAM_PATIENCE, answer_one(&mut stream)).await {}
            drop(place);
        });
    }
}

/// Answers the next query of a connection; `None` when there is no further one.
async fn answer_one(stream: &mut TcpStream) -> Option<()> {
    let length = usize::from(stream.read_u16().await.ok()?);
    let mut query = [0; MAX_QUERY_BYTES];
    let query = query.get_mut(..length)?;
    stream.read_exact(query).await.ok()?;
    let answer = answer(query)?;
    let length = u16::try_from(answer.len()).ok()?;
    stream.write_all(&[&length.to_be_bytes(), &*answer].concat()).await.ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x07example\x03org\0\0\x01\0\x01";

    #[test]
    fn a_query_is_answered_with_its_question_and_no_such_name() {
        let with_options = [QUERY, b"\0\0\x29\x10\0\0\0\0\0\0\0"].concat();
        for query in [QUERY, &with_options] {
            let answer = answer(query).unwrap();
            assert_eq!(answer[..12], *b"\x12\x34\x81\x83\0\x01\0\0\0\0\0\0");
            assert_eq!(answer[12..], QUERY[12..]);
        }
    }

    #[test]
    fn what_is_no_query_is_dropped() {
        let changed = |at: usize, byte: u8| {
            let mut query = QUERY.to_vec();
            query[at] = byte;
            query
        };
        for (bad, why) in [
            (QUERY[..11].to_vec(), "no header"),
            (QUERY[..QUERY.len() - 1].to_vec(), "cut"),
            (changed(2, 0x81), "a response"),
            (changed(2, 0x29), "another kind of query"),
            (changed(5, 0), "no question"),
            (changed(5, 2), "two questions"),
            (changed(12, 0xc0), "a pointer"),
            ([&QUERY[..12], &[1, b'a'].repeat(200)].concat(), "a name without end"),
        ] {
            assert_eq!(answer(&bad), None, "{why}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(query in prop::collection::vec(any::<u8>(), 0..600)) {
            check_answer(&query);
            check_answer(&[&QUERY[..HEADER_BYTES], &query].concat());
        }
    }
}
