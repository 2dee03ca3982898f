//! What a program asks the proxy for first, as far as that tells whether it is in the sandbox itself. `judge` is pure.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::socks;
use crate::itself::Itself;

/// How long a program may take to send its first byte, and from then on to say which host it asks for: what says less is
/// for egress to judge.
const FIRST_BYTE: Duration = Duration::from_secs(10);
const HOST: Duration = Duration::from_millis(500);
/// Longest method, and the most in which a host and its port end.
const METHOD_BYTES: usize = 32;
const MOST_BYTES: usize = 1024;
const FIRST_READ_BYTES: usize = 4 << 10;

const CONNECT: &[u8] = b"CONNECT";
const HTTP: &[u8] = b"http://";
pub(super) const HTTP_PORT: u16 = 80;

/// What a program has asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Something that is not in the sandbox, or no request.
    Outside(Outside),
    /// A server of the sandbox itself, and what was read after a request of SOCKS, or with one in HTTP.
    Inside(Inside, BytesMut),
}

/// What was read of a connection that is not for the sandbox itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outside {
    /// Not empty.
    pub(super) read: BytesMut,
    /// How many of these bytes are a greeting of SOCKS5 that was answered; 0: none was.
    pub(super) greeting_bytes: usize,
}

/// How a program has asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A request of HTTP in absolute form.
    Absolute,
    Connect,
    /// Version 4, by address or by name.
    Socks4,
    Socks5,
}

/// A request for a server of the sandbox itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) form: Form,
    /// Host and port, as the program has named them.
    pub(super) target: String,
    /// Where the server may be, in the order in which to try.
    pub(super) places: Vec<SocketAddr>,
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Undecided,
    Outside,
    Inside(Inside),
}

/// Reads until it is known which host is asked for; `None`: the program said nothing, or has ended.
pub(super) async fn read(program: &mut TcpStream, itself: &Itself) -> Option<Asked> {
    let mut bytes = BytesMut::with_capacity(FIRST_READ_BYTES);
    let mut deadline = Instant::now() + FIRST_BYTE;
    loop {
        match timeout_at(deadline, program.read_buf(&mut bytes)).await {
            Ok(Ok(1..)) => {}
            // What came so far is all there is for now.
            Ok(Ok(_)) | Err(_) if !bytes.is_empty() => return Some(outside(bytes)),
            _ => return None,
        }
        if matches!(bytes.first(), Some(&(socks::VERSION_4 | socks::VERSION))) {
            return socks::read(program, bytes, itself).await;
        }
        match judge(&bytes, itself) {
            Judged::Undecided => deadline = deadline.min(Instant::now() + HOST),
            Judged::Outside => return Some(outside(bytes)),
            Judged::Inside(inside) => return Some(Asked::Inside(inside, bytes)),
        }
    }
}

fn outside(read: BytesMut) -> Asked {
    Asked::Outside(Outside { read, greeting_bytes: 0 })
}

/// What of a request says which host it is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// That is still to come.
    Part,
    /// Nothing, or it is none.
    Nothing,
    /// Host and port, as they were written.
    For {
        /// Whether it is a `CONNECT`; otherwise it is a request in absolute form.
        connect: bool,
        authority: &'a [u8],
    },
}

fn judge(bytes: &[u8], itself: &Itself) -> Judged {
    match request(bytes) {
        Request::Part => Judged::Undecided,
        Request::Nothing => Judged::Outside,
        Request::For { connect, authority } => within(authority, connect, itself),
    }
}

/// Which host a request asks for.
pub(super) fn request(bytes: &[u8]) -> Request<'_> {
    let method = &bytes[..bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len())];
    if method.is_empty() || method.len() > METHOD_BYTES || !method.iter().all(|byte| is_of_method(*byte)) {
        return Request::Nothing;
    }
    let Some(mut rest) = bytes.get(method.len() + 1..) else { return Request::Part };
    let connect = method == CONNECT;
    if !connect {
        let scheme = &rest[..rest.len().min(HTTP.len())];
        if !scheme.eq_ignore_ascii_case(&HTTP[..scheme.len()]) {
            return Request::Nothing;
        }
        rest = &rest[scheme.len()..];
    }
    match rest.iter().position(|byte| matches!(byte, b' ' | b'/' | b'?' | b'#' | b'\r' | b'\n')) {
        Some(end) => Request::For { connect, authority: &rest[..end] },
        None if bytes.len() > MOST_BYTES => Request::Nothing,
        None => Request::Part,
    }
}

fn is_of_method(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'-' || byte == b'_'
}

/// Whether `authority` is in the sandbox.
fn within(authority: &[u8], connect: bool, itself: &Itself) -> Judged {
    let text = std::str::from_utf8(authority).unwrap_or_default();
    // A user's name is for the server, which is told by a header.
    let target = text.rsplit_once('@').map_or(text, |(_, target)| target);
    let default = if connect { None } else { Some(HTTP_PORT) };
    let places = split(target, default).map(|(host, port)| itself.places(host, port)).unwrap_or_default();
    if places.is_empty() {
        return Judged::Outside;
    }
    let form = if connect { Form::Connect } else { Form::Absolute };
    Judged::Inside(Inside { form, target: target.to_owned(), places })
}

/// Host, without brackets, and port.
pub(super) fn split(target: &str, default: Option<u16>) -> Option<(&str, u16)> {
    let (host, port) = match target.strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').map(|(host, rest)| (host, rest.strip_prefix(':').unwrap_or(rest)))?
        }
        None => target.split_once(':').unwrap_or((target, "")),
    };
    let port = if port.is_empty() { default? } else { port.parse().ok()? };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inside(text: &str) -> Option<(bool, String)> {
        match judge(text.as_bytes(), &Itself::default()) {
            Judged::Inside(inside) => Some((inside.form == Form::Connect, inside.places[0].to_string())),
            _ => None,
        }
    }

    #[test]
    fn a_request_for_the_sandbox_itself_is_known_by_its_host() {
        for (request, connect, place) in [
            ("CONNECT localhost:8443 HTTP/1.1\r\n", true, "127.0.0.1:8443"),
            ("CONNECT [::1]:443 ", true, "[::1]:443"),
            ("CONNECT 0:5 ", true, "127.0.0.1:5"),
            ("GET http://0.0.0.0:8000/a?b HTTP/1.1\r\n", false, "127.0.0.1:8000"),
            ("GET http://127.1 HTTP/1.1\r\n", false, "127.0.0.1:80"),
            ("GET http://127.1: HTTP/1.1\r\n", false, "127.0.0.1:80"),
            ("POST HTTP://me:secret@[::]:9?x", false, "[::1]:9"),
            ("M-SEARCH http://LOCALHOST.:1#", false, "127.0.0.1:1"),
        ] {
            assert_eq!(inside(request), Some((connect, place.into())), "{request}");
        }
    }

    #[test]
    fn everything_else_is_judged_elsewhere_as_soon_as_that_is_known() {
        for text in [
            "x",
            "early",
            "\x05\x01\0",
            "\x16\x03",
            "GET / HTTP/1.1",
            "GET https://localhost/ ",
            "GET http:/localhost/ ",
            "CONNECT localhost ",
            "CONNECT localhost:0x50 ",
            "CONNECT example.org:443 ",
            "GET http:///",
            " GET http://0/",
            "GET http://example.org/?http://localhost/ ",
            "GET http://localhost@example.org/ ",
            "CONNECT [::1:80 ",
            "CONNECT localhost:70000 ",
        ] {
            assert_eq!(judge(text.as_bytes(), &Itself::default()), Judged::Outside, "{text}");
        }
        for text in ["C", "CONNECT ", "CONNECT exam", "GET htt", "GET http://localhost:80"] {
            assert_eq!(judge(text.as_bytes(), &Itself::default()), Judged::Undecided, "{text}");
        }
        for begin in ["GET http://", "CONNECT ", ""] {
            let long = format!("{begin}{}", "A".repeat(2000));
            assert_eq!(judge(long.as_bytes(), &Itself::default()), Judged::Outside);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for begin in ["", "CONNECT ", "GET http://", "GET http://["] {
                let _ = judge(&[begin.as_bytes(), &bytes].concat(), &Itself::default());
            }
        }
    }
}
