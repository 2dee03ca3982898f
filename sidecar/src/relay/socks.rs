//! A client of SOCKS5 (RFC 1928) that is refused: its host is heard first, so that it is told in its own protocol why, and
//! the record has the host. `greeting` and `request` are pure.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::refusal::Refusal;
use super::wanted::{Protocol, Wanted};

/// The first byte of its messages.
pub(super) const VERSION: u8 = 5;
const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
/// Answers to a request.
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_COMMAND: u8 = 7;
const NO_ADDRESS_KIND: u8 = 8;
/// How long a client may take until its request is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// What of a message is there; how many bytes it has.
#[derive(Debug, PartialEq, Eq)]
enum Heard<T> {
    Part,
    Whole(T, usize),
    /// It is not served, or none; the answer.
    Odd(Vec<u8>),
}

/// Hears what a client asks for, of which `held` was read already: that, and the last answer to it.
pub(super) async fn hear(
    stream: &mut TcpStream,
    mut held: BytesMut,
    refusal: Refusal,
) -> (Option<Wanted>, Vec<u8>) {
    let conversation = async {
        if let Err(odd) = whole(stream, &mut held, greeting).await {
            return (None, odd);
        }
        if stream.write_all(&[VERSION, NO_PASSWORD]).await.is_err() {
            return (None, Vec::new());
        }
        match whole(stream, &mut held, request).await {
            Ok(wanted) => (wanted, reply(code(refusal))),
            Err(odd) => (None, odd),
        }
    };
    timeout(PATIENCE, conversation).await.unwrap_or_default()
}

/// Reads until a message is there, which is at most 262 bytes long; otherwise how to answer what is none.
async fn whole<T>(
    stream: &mut TcpStream,
    held: &mut BytesMut,
    read: impl Fn(&[u8]) -> Heard<T>,
) -> Result<T, Vec<u8>> {
    loop {
        match read(held) {
            Heard::Whole(message, bytes) => {
                held.advance(bytes);
                return Ok(message);
            }
            Heard::Odd(answer) => return Err(answer),
            Heard::Part => match stream.read_buf(held).await {
                Ok(1..) => {}
                Ok(_) | Err(_) => return Err(Vec::new()),
            },
        }
    }
}

fn greeting(bytes: &[u8]) -> Heard<()> {
    let refused = || Heard::Odd(vec![VERSION, NO_METHOD]);
    match bytes {
        [] | [VERSION] => Heard::Part,
        [VERSION, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            None => Heard::Part,
            Some(methods) if methods.contains(&NO_PASSWORD) => Heard::Whole((), 2 + methods.len()),
            Some(_) => refused(),
        },
        _ => refused(),
    }
}

fn request(bytes: &[u8]) -> Heard<Option<Wanted>> {
    let [version, command, _, kind, rest @ ..] = bytes else { return Heard::Part };
    if (*version, *command) != (VERSION, CONNECT) {
        return Heard::Odd(reply(NO_COMMAND));
    }
    let host_bytes = match (*kind, rest.first()) {
        (1, _) => 4,
        (4, _) => 16,
        (3, Some(length)) => 1 + usize::from(*length),
        (3, None) => return Heard::Part,
        _ => return Heard::Odd(reply(NO_ADDRESS_KIND)),
    };
    let Some((host, after)) = rest.split_at_checked(host_bytes) else { return Heard::Part };
    let Some(port) = after.first_chunk().map(|port| u16::from_be_bytes(*port)) else { return Heard::Part };
    let v4 = || host.first_chunk().and_then(|octets| Wanted::of_v4(*octets, port));
    let v6 = || host.first_chunk().and_then(|octets| Wanted::of_v6(*octets, port));
    let wanted = match *kind {
        1 => v4(),
        4 => v6(),
        _ => Wanted::new(Protocol::Socks5, &host[1..], port),
    };
    Heard::Whole(wanted, bytes.len() - after.len() + 2)
}

/// As egress answers for the same reason.
fn code(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Offline => NOT_ALLOWED,
        Refusal::Unavailable => UNREACHABLE,
    }
}

fn reply(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_greeting_has_a_way_without_a_password() {
        assert_eq!(greeting(&[5, 2, 2, 0, 9]), Heard::Whole((), 4));
        for odd in [&[5, 1, 2][..], &[5, 0], &[4, 1, 0]] {
            assert_eq!(greeting(odd), Heard::Odd(vec![5, 0xff]), "{odd:?}");
        }
        for part in [&[][..], &[5], &[5, 2, 0]] {
            assert_eq!(greeting(part), Heard::Part, "{part:?}");
        }
    }

    #[test]
    fn a_request_names_a_host_by_name_or_address() {
        let v6 = [&[5, 1, 0, 4, 0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1, 0, 22]].concat();
        for (bytes, host, port) in [
            (&b"\x05\x01\x00\x03\x05a.org\x01\xbb"[..], "a.org", 443),
            (&[5, 1, 0, 1, 192, 0, 2, 7, 0, 80], "192.0.2.7", 80),
            (&v6, "2001:db8::1", 22),
        ] {
            let wanted = Wanted { protocol: Protocol::Socks5, host: host.into(), port };
            assert_eq!(request(bytes), Heard::Whole(Some(wanted), bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(request(&bytes[..end]), Heard::Part, "{host} {end}");
            }
        }
        assert_eq!(request(&[5, 3, 0, 1]), Heard::Odd(reply(NO_COMMAND)));
        assert_eq!(request(&[5, 1, 0, 2]), Heard::Odd(reply(NO_ADDRESS_KIND)));
        assert_eq!(request(&[5, 1, 0, 3, 0, 0, 1]), Heard::Whole(None, 7));
    }

    proptest! {
        #[test]
        fn any_bytes_are_heard(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = greeting(&bytes);
            for begin in [&[][..], &[5, 1, 0], &[5, 1, 0, 3]] {
                if let Heard::Whole(_, read) = request(&[begin, &bytes].concat()) {
                    prop_assert!(read <= 262 && read <= begin.len() + bytes.len());
                }
            }
        }
    }
}
