//! What a program asks the proxy for first, as far as that tells whether it is in the sandbox itself. `judge` is pure.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::asked::{Asked, Form, Inside, Outside};
use super::http::{self, Request, split};
use super::socks;
use crate::itself::Itself;

/// How long a program may take to send its first byte, and from then on to say which host it asks for: what says less is
/// for egress to judge.
const FIRST_BYTE: Duration = Duration::from_secs(10);
const HOST: Duration = Duration::from_millis(500);
const FIRST_READ_BYTES: usize = 4 << 10;

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

fn judge(bytes: &[u8], itself: &Itself) -> Judged {
    match http::request(bytes) {
        Request::Part => Judged::Undecided,
        Request::Nothing => Judged::Outside,
        Request::For { connect, authority } => within(authority, connect, itself),
    }
}

/// Whether `authority` is in the sandbox.
fn within(authority: &[u8], connect: bool, itself: &Itself) -> Judged {
    let text = std::str::from_utf8(authority).unwrap_or_default();
    // A user's name is for the server, which is told by a header.
    let target = text.rsplit_once('@').map_or(text, |(_, target)| target);
    let default = if connect { None } else { Some(http::PORT) };
    let places = split(target, default).map(|(host, port)| itself.places(host, port)).unwrap_or_default();
    if places.is_empty() {
        return Judged::Outside;
    }
    let form = if connect { Form::Connect } else { Form::Absolute };
    Judged::Inside(Inside { form, target: target.to_owned(), places })
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
