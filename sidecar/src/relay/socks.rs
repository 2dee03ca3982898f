//! Clients of SOCKS5 (RFC 1928), and of version 4 as far as they ask for the sandbox itself: their host is heard before it
//! is known where they are to go. All is pure but `read` and `whole`.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::asked::{Asked, Form, Inside, Outside};
use super::refusal::Refusal;
use super::wanted::{Protocol, Wanted};
use crate::itself::Itself;

/// The first byte of its messages.
pub(super) const VERSION: u8 = 5;
const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
/// The length of the answer to a greeting.
pub(super) const GREETED_BYTES: usize = 2;
/// Answers to a request.
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const NO_COMMAND: u8 = 7;
const NO_ADDRESS_KIND: u8 = 8;
/// Version 4, its answers, and the most in which its two texts end.
pub(super) const VERSION_4: u8 = 4;
const GRANTED_4: u8 = 90;
const REFUSED_4: u8 = 91;
const TEXTS_4_BYTES: usize = 512;
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

/// Reads what a client asks for, of which `held` was read already and begins with a version; `None`: it has ended, or says
/// too little. A greeting is answered, since the host comes after it; what the relay does not serve is for egress to
/// refuse.
pub(super) async fn read(stream: &mut TcpStream, mut held: BytesMut, itself: &Itself) -> Option<Asked> {
    let asked = async {
        let outside = |read, greeting_bytes| Some(Asked::Outside(Outside { read, greeting_bytes }));
        let (mut form, mut begin) = (Form::Socks4, 0);
        if held.first() == Some(&VERSION) {
            let Ok(((), length)) = whole(stream, &mut held, greeting).await? else { return outside(held, 0) };
            stream.write_all(&[VERSION, NO_PASSWORD]).await.ok()?;
            (form, begin) = (Form::Socks5, length);
        }
        let wanted = match form {
            Form::Socks4 => whole(stream, &mut held, request_4).await?,
            _ => whole(stream, &mut held, |bytes| request(&bytes[begin..])).await?,
        };
        let Ok((Some(Wanted { host, port, .. }), length)) = wanted else { return outside(held, begin) };
        let places = itself.places(&host, port);
        if places.is_empty() {
            return outside(held, begin);
        }
        let read = held.split_off(begin + length);
        Some(Asked::Inside(Inside { form, target: format!("{host}:{port}"), places }, read))
    };
    timeout(PATIENCE, asked).await.ok().flatten()
}

/// The host that a client of version 5 asks for where there is no link, and the last answer to it.
pub(super) fn refused(outside: &Outside, refusal: Refusal) -> (Option<Wanted>, Vec<u8>) {
    if outside.greeting_bytes == 0 {
        return (None, vec![VERSION, NO_METHOD]);
    }
    match request(&outside.read[outside.greeting_bytes..]) {
        Heard::Whole(wanted, _) => (wanted, reply(code(refusal))),
        Heard::Odd(answer) => (None, answer),
        Heard::Part => (None, Vec::new()),
    }
}

/// The answer to a request for a server of the sandbox itself, which takes connections or refuses them.
pub(super) fn connected(form: Form, taken: bool) -> Vec<u8> {
    match form {
        Form::Socks4 => [&[0, if taken { GRANTED_4 } else { REFUSED_4 }][..], &[0; 6]].concat(),
        _ => reply(if taken { SUCCEEDED } else { REFUSED }),
    }
}

/// Reads until a message is there, and returns it with its length; otherwise how to answer what is none.
async fn whole<T>(
    stream: &mut TcpStream,
    held: &mut BytesMut,
    read: impl Fn(&[u8]) -> Heard<T>,
) -> Option<Result<(T, usize), Vec<u8>>> {
    loop {
        match read(held) {
            Heard::Whole(message, bytes) => return Some(Ok((message, bytes))),
            Heard::Odd(answer) => return Some(Err(answer)),
            Heard::Part if stream.read_buf(held).await.ok()? == 0 => return None,
            Heard::Part => {}
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

/// Of version 4: its address, or after the user's name the host's (4A).
fn request_4(bytes: &[u8]) -> Heard<Option<Wanted>> {
    let Some((&[_, command, high, low, ref address @ ..], rest)) = bytes.split_first_chunk::<8>() else {
        return Heard::Part;
    };
    if command != CONNECT {
        return Heard::Odd(Vec::new());
    }
    let port = u16::from_be_bytes([high, low]);
    let named = address[..3] == [0; 3] && address[3] != 0;
    let mut texts = rest.split_inclusive(|byte| *byte == 0).filter(|text| text.ends_with(&[0]));
    let Some((user, host)) = texts.next().zip(if named { texts.next() } else { Some(&[][..]) }) else {
        return if rest.len() > TEXTS_4_BYTES { Heard::Odd(Vec::new()) } else { Heard::Part };
    };
    let wanted = match host.split_last() {
        Some((_, host)) => Wanted::new(Protocol::Socks5, host, port),
        None => Wanted::of_v4(*address, port),
    };
    Heard::Whole(wanted, bytes.len() - rest.len() + user.len() + host.len())
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

    #[test]
    fn version_4_names_an_address_or_a_host_after_the_user() {
        for (bytes, host, port) in [
            (&b"\x04\x01\x1f\x40\x7f\0\0\x01me\0"[..], "127.0.0.1", 8000),
            (b"\x04\x01\0\x50\0\0\0\0\0", "0.0.0.0", 80),
            (b"\x04\x01\0\x50\0\0\0\x01me\0a.org\0", "a.org", 80),
        ] {
            let wanted = Wanted { protocol: Protocol::Socks5, host: host.into(), port };
            assert_eq!(request_4(bytes), Heard::Whole(Some(wanted), bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(request_4(&bytes[..end]), Heard::Part, "{host} {end}");
            }
        }
        assert_eq!(request_4(&[4, 2, 0, 80, 1, 1, 1, 1, 0]), Heard::Odd(vec![]));
        assert_eq!(request_4(&[&[4, 1, 0, 80, 1, 1, 1, 1][..], &[7; 513]].concat()), Heard::Odd(vec![]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_heard(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = greeting(&bytes);
            if let Heard::Whole(_, read) = request_4(&[&[4, 1], &bytes[..]].concat()) {
                prop_assert!(read <= 2 + bytes.len());
            }
            for begin in [&[][..], &[5, 1, 0], &[5, 1, 0, 3]] {
                if let Heard::Whole(_, read) = request(&[begin, &bytes].concat()) {
                    prop_assert!(read <= 262 && read <= begin.len() + bytes.len());
                }
            }
        }
    }
}
