//! A request of a program for a server of its own sandbox: answered without the link, whatever the policy.
//!
//! Programs are told to ask such servers without the proxy (`NO_PROXY`), and many read that differently. What comes here
//! nevertheless is connected within the sandbox, so that it has the answer that it would have had.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::{Code, Problem};

use super::asked::{Form, Inside};
use super::{refusal, socks};

/// Largest head of a request, and how long it may take to come.
const HEAD_BYTES: usize = 64 << 10;
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// For one address. A server of this network takes a connection at once, or refuses it.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
const END: &[u8] = b"\r\n\r\n";
const LINE: &str = "\r\n";

/// Serves a program's connection to its end; `read` is what it has sent so far, without a request of SOCKS.
pub(super) async fn serve(mut program: TcpStream, asked: &Inside, mut read: BytesMut) {
    let mut head = BytesMut::new();
    if matches!(asked.form, Form::Absolute | Form::Connect) {
        let Ok(Some(length)) = timeout(HEAD_WAIT, whole_head(&mut program, &mut read)).await else {
            let problem = Problem::new(Code::InvalidArgument, "the head of this request does not end");
            return refusal::answer(program, &refusal::http(&problem, "")).await;
        };
        head = read.split_to(length);
    }
    let Some(mut server) = connect(&asked.places).await else {
        return refusal::answer(program, &unreachable(asked)).await;
    };
    let _ = server.set_nodelay(true);
    let carried = match accepted(asked.form) {
        Some(answer) => tunnel(&mut program, &mut server, &answer, &read).await,
        None => exchange(&mut program, &mut server, &head, &read).await,
    };
    if carried.is_err() {
        // A plain end would make what was cut look like the whole.
        let _ = program.set_zero_linger();
    }
}

/// The answer that begins a tunnel; `None`: the answer is the server's.
fn accepted(form: Form) -> Option<Vec<u8>> {
    match form {
        Form::Absolute => None,
        Form::Connect => Some(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        Form::Socks4 | Form::Socks5 => Some(socks::connected(form, true)),
    }
}

/// The answer where nothing listens.
fn unreachable(asked: &Inside) -> Vec<u8> {
    if matches!(asked.form, Form::Socks4 | Form::Socks5) {
        return socks::connected(asked.form, false);
    }
    let detail = format!("nothing in this sandbox listens at {}, which is the sandbox itself", asked.target);
    refusal::http(&Problem::new(Code::PortUnreachable, detail), "")
}

/// Reads until the head has ended, and returns its length; `None` where it does not.
async fn whole_head(program: &mut TcpStream, read: &mut BytesMut) -> Option<usize> {
    let mut from = 0;
    loop {
        if let Some(at) = read[from..].windows(END.len()).position(|four| four == END) {
            return Some(from + at + END.len());
        }
        from = read.len().saturating_sub(END.len() - 1);
        if read.len() > HEAD_BYTES || program.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

async fn connect(places: &[SocketAddr]) -> Option<TcpStream> {
    for place in places {
        if let Ok(Ok(server)) = timeout(CONNECT_WAIT, TcpStream::connect(place)).await {
            return Some(server);
        }
    }
    None
}

async fn tunnel(
    program: &mut TcpStream,
    server: &mut TcpStream,
    answer: &[u8],
    read: &[u8],
) -> io::Result<()> {
    program.write_all(answer).await?;
    server.write_all(read).await?;
    io::copy_bidirectional(program, server).await.map(drop)
}

/// One request and its answer. The server is told to close, since the next request on this connection may be for
/// another one.
async fn exchange(
    program: &mut TcpStream,
    server: &mut TcpStream,
    head: &[u8],
    read: &[u8],
) -> io::Result<()> {
    let (head, body) = rewritten(head).ok_or(io::ErrorKind::InvalidData)?;
    let (mut from_program, mut to_program) = program.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async {
        to_server.write_all(&head).await?;
        let most = body.unwrap_or(u64::MAX);
        let early = read.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        to_server.write_all(&read[..early]).await?;
        let mut rest = (&mut from_program).take(most - early as u64);
        io::copy(&mut rest, &mut to_server).await?;
        // A further request, at a server that does not close.
        if early < read.len() || from_program.read(&mut [0]).await? > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        to_server.shutdown().await
    };
    let down = async {
        io::copy(&mut from_server, &mut to_program).await?;
        to_program.shutdown().await
    };
    tokio::pin!(up, down);
    tokio::select! {
        down = &mut down => down,
        // The program has ended its side, and waits for the rest; or the connection broke.
        up = &mut up => match up {
            Ok(()) => down.await,
            Err(err) => Err(err),
        },
    }
}

/// The head as a server gets it, for its path and without what is for a proxy, and the bytes of the body; `None`: until
/// the program ends its side. `None` altogether where it is no head.
fn rewritten(head: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
    // A character a byte: values need not be UTF-8.
    let text: String = head.iter().map(|byte| char::from(*byte)).collect();
    let text = text.strip_suffix("\r\n\r\n")?;
    let (line, fields) = text.split_once(LINE).unwrap_or((text, ""));
    let mut words = line.splitn(3, ' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let fields: Vec<&str> = fields.split(LINE).filter(|field| !field.is_empty()).collect();
    let value = |wanted: &str| fields.iter().find_map(|field| named(field, wanted));
    let upgrades = value("upgrade").is_some();
    let for_proxy = |field: &&&str| {
        let dropped = ["proxy-connection", "proxy-authorization", "keep-alive"];
        let connection = named(field, "connection").is_some() && !upgrades;
        !connection && !dropped.iter().any(|name| named(field, name).is_some())
    };
    let mut lines = vec![format!("{method} {} {version}", path(target)?)];
    lines.extend(fields.iter().filter(for_proxy).map(|field| (*field).to_owned()));
    if !upgrades {
        lines.push("Connection: close".to_owned());
    }
    let endless = upgrades || value("transfer-encoding").is_some();
    let body =
        if endless { None } else { Some(value("content-length").map_or(Some(0), |text| text.parse().ok())?) };
    let bytes = lines.iter().flat_map(|line| line.chars().chain(LINE.chars())).chain(LINE.chars());
    Some((bytes.map(|byte| byte as u8).collect(), body))
}

/// The value of a field that has this name, without regard to case.
fn named<'a>(field: &'a str, wanted: &str) -> Option<&'a str> {
    let (name, value) = field.split_once(':')?;
    name.eq_ignore_ascii_case(wanted).then_some(value.trim())
}

/// Path and query of an address in absolute form.
fn path(target: &str) -> Option<String> {
    let (_, rest) = target.split_once("://")?;
    let rest = rest.split('#').next().unwrap_or_default();
    Some(match rest.find(['/', '?']) {
        None => "/".to_owned(),
        Some(at) if rest[at..].starts_with('?') => format!("/{}", &rest[at..]),
        Some(at) => rest[at..].to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: &str) -> (String, Option<u64>) {
        let (head, body) = rewritten(head.as_bytes()).unwrap();
        (String::from_utf8(head).unwrap(), body)
    }

    #[test]
    fn a_request_is_for_its_path_and_the_last_of_its_connection() {
        let asked = "GET http://0.0.0.0:8000/a?b#c HTTP/1.1\r\nHost: 0.0.0.0:8000\r\nProxy-Connection: keep-alive\r\n\
                     Connection: keep-alive\r\nproxy-authorization: Basic x\r\nX-Own: Proxy-Connection: y\r\n\r\n";
        let expected = "GET /a?b HTTP/1.1\r\nHost: 0.0.0.0:8000\r\nX-Own: Proxy-Connection: y\r\nConnection: close\r\n\r\n";
        assert_eq!(written(asked), (expected.into(), Some(0)));
        for (target, path) in [
            ("http://a", "/"),
            ("http://a?q", "/?q"),
            ("HTTP://a/", "/"),
            ("http://u@a/http://b", "/http://b"),
        ] {
            let (head, _) = written(&format!("GET {target} HTTP/1.0\r\n\r\n"));
            assert_eq!(head, format!("GET {path} HTTP/1.0\r\nConnection: close\r\n\r\n"));
        }
    }

    #[test]
    fn the_end_of_a_body_is_known_but_for_one_in_chunks_and_a_connection_that_changes_its_protocol() {
        let body = |fields: &str| written(&format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n")).1;
        assert_eq!(body("content-length: 12\r\n"), Some(12));
        let (head, _) = rewritten(b"GET http://a/ HTTP/1.1\r\nX: \xe9\xff\r\n\r\n").unwrap();
        assert_eq!(head, b"GET / HTTP/1.1\r\nX: \xe9\xff\r\nConnection: close\r\n\r\n");
        assert_eq!(body("Transfer-Encoding: chunked\r\n"), None);
        assert_eq!(body("Connection: Upgrade\r\nUpgrade: websocket\r\n"), None);
        let (head, _) =
            written("GET http://a/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(head, "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    }

    #[test]
    fn what_is_no_request_is_none() {
        for head in [
            "",
            "GET\r\n\r\n",
            "GET http://a/\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n",
        ] {
            assert_eq!(rewritten(head.as_bytes()), None, "{head}");
        }
        assert_eq!(rewritten(b"POST http://a/ HTTP/1.1\r\nContent-Length: many\r\n\r\n"), None);
    }
}
