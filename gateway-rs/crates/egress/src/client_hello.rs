//! The first message of a TLS client (RFC 8446 section 4.1.2), as far as a proxy looks at it. Pure.
//!
//! The head is read by `tls-parser`. The extensions are walked here, since its reader of them stops silently at one
//! that it does not understand: what stands behind that one would be hidden.

use tls_parser::parse_tls_handshake_client_hello;

/// Longest message, and most records that it comes in. Browsers send 2 KiB, in one record.
const MAX_BYTES: usize = 16 << 10;
const MAX_RECORDS: usize = 16;

const RECORD_HEAD_BYTES: usize = 5;
const MESSAGE_HEAD_BYTES: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const MAJOR_VERSION: u8 = 3;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Encrypted client hello, its earlier form, and what only occurs inside it.
const ENCRYPTED: [u16; 3] = [0xfe0d, 0xffce, 0xfd00];

/// What the message says about its server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHello {
    /// The server name, as it was sent.
    pub server_name: Option<String>,
    /// Whether a further server name is, or pretends to be, encrypted in it.
    pub encrypted: bool,
}

/// What was read begins no TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this does not begin a TLS connection")]
pub struct NotTls;

/// Whether a connection that begins with this byte may be one of TLS.
pub fn may_begin_with(first: u8) -> bool {
    first == HANDSHAKE
}

/// Reads the message from the first bytes of a connection; `None` while it is not there as a whole. Costs a look at
/// each record's head until it is.
///
/// # Errors
/// [`NotTls`]: it cannot become one any more, is longer than 16 KiB, or has an extension twice.
pub fn read(bytes: &[u8]) -> Result<Option<ClientHello>, NotTls> {
    let Some(message) = message(bytes)? else { return Ok(None) };
    let (rest, hello) = parse_tls_handshake_client_hello(&message).map_err(|_| NotTls)?;
    if !rest.is_empty() {
        return Err(NotTls);
    }
    extensions(hello.ext.unwrap_or_default()).map(Some)
}

/// The body of the message, put together from its records.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTls> {
    let mut fragments = Vec::new();
    for _ in 0..MAX_RECORDS {
        if bytes.first().is_some_and(|kind| *kind != HANDSHAKE)
            || bytes.get(1).is_some_and(|major| *major != MAJOR_VERSION)
        {
            return Err(NotTls);
        }
        let Some((head, rest)) = bytes.split_at_checked(RECORD_HEAD_BYTES) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if length == 0 || length > MAX_BYTES {
            return Err(NotTls);
        }
        let Some((fragment, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        fragments.extend_from_slice(fragment);
        if let Some(length) = wanted(&fragments)? {
            return match fragments.len().cmp(&(MESSAGE_HEAD_BYTES + length)) {
                std::cmp::Ordering::Equal => Ok(Some(fragments.split_off(MESSAGE_HEAD_BYTES))),
                std::cmp::Ordering::Greater => Err(NotTls),
                std::cmp::Ordering::Less => {
                    bytes = rest;
                    continue;
                }
            };
        }
        bytes = rest;
    }
    Err(NotTls)
}

/// The length of the message, once its head is there.
fn wanted(fragments: &[u8]) -> Result<Option<usize>, NotTls> {
    if fragments.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(NotTls);
    }
    let Some(head) = fragments.first_chunk::<MESSAGE_HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]);
    usize::try_from(length).ok().filter(|length| *length <= MAX_BYTES).map(Some).ok_or(NotTls)
}

fn extensions(mut bytes: &[u8]) -> Result<ClientHello, NotTls> {
    let (mut hello, mut seen) = (ClientHello::default(), Vec::new());
    while !bytes.is_empty() {
        let (kind, rest) = number(bytes)?;
        let (content, rest) = block(rest)?;
        if seen.contains(&kind) {
            return Err(NotTls);
        }
        seen.push(kind);
        if kind == SERVER_NAME {
            hello.server_name = Some(server_name(content)?);
        }
        hello.encrypted |= ENCRYPTED.contains(&kind);
        bytes = rest;
    }
    Ok(hello)
}

/// The one name in the extension; a list of several is sent by nobody, and servers disagree about which counts.
fn server_name(content: &[u8]) -> Result<String, NotTls> {
    let (list, rest) = block(content)?;
    let (kind, name) = list.split_first().ok_or(NotTls)?;
    let (name, more) = block(name)?;
    if !rest.is_empty() || !more.is_empty() || *kind != HOST_NAME {
        return Err(NotTls);
    }
    String::from_utf8(name.to_vec()).map_err(|_| NotTls)
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), NotTls> {
    let (number, rest) = bytes.split_first_chunk().ok_or(NotTls)?;
    Ok((u16::from_be_bytes(*number), rest))
}

/// Bytes behind their length.
fn block(bytes: &[u8]) -> Result<(&[u8], &[u8]), NotTls> {
    let (length, rest) = number(bytes)?;
    rest.split_at_checked(length.into()).ok_or(NotTls)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sized(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &sized(content)].concat()
    }

    fn named(name: &str) -> Vec<u8> {
        extension(SERVER_NAME, &sized(&[&[HOST_NAME][..], &sized(name.as_bytes())].concat()))
    }

    fn body(extensions: &[u8]) -> Vec<u8> {
        let head = [&[3, 3][..], &[7; 32], &[0], &sized(&[0x13, 1]), &[1, 0]].concat();
        [&head[..], &sized(extensions)].concat()
    }

    fn record(fragment: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE, 3, 1][..], &sized(fragment)].concat()
    }

    fn handshake(body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], body].concat()
    }

    /// The first bytes of a client that wants this server.
    pub(crate) fn hello(name: &str) -> Vec<u8> {
        record(&handshake(&body(&named(name))))
    }

    fn told(extensions: &[u8]) -> Result<Option<ClientHello>, NotTls> {
        read(&record(&handshake(&body(extensions))))
    }

    #[test]
    fn the_server_name_is_read_wherever_it_stands_and_however_it_is_cut() {
        let extensions = [extension(10, &[0, 2, 0, 29]), extension(0x1a1a, &[]), named("a.test")].concat();
        let hello = told(&extensions).unwrap().unwrap();
        assert_eq!((hello.server_name.as_deref(), hello.encrypted), (Some("a.test"), false));
        let message = handshake(&body(&extensions));
        let cut: Vec<u8> = message.chunks(9).flat_map(record).collect();
        assert_eq!(read(&cut).unwrap().unwrap(), hello);
        for end in 0..cut.len() {
            assert_eq!(read(&cut[..end]), Ok(None), "{end}");
        }
        assert_eq!(told(&[]).unwrap().unwrap(), ClientHello::default());
        // Without any extensions, as clients of the nineties send it.
        let bare = body(&[]);
        assert_eq!(
            read(&record(&handshake(&bare[..bare.len() - 2]))).unwrap().unwrap(),
            ClientHello::default()
        );
    }

    #[test]
    fn what_is_encrypted_is_told_also_behind_what_nobody_understands() {
        for kind in ENCRYPTED {
            let extensions = [named("a.test"), extension(10, &[1]), extension(kind, &[1, 2, 3])].concat();
            assert!(told(&extensions).unwrap().unwrap().encrypted);
        }
    }

    #[test]
    fn everything_else_is_not_tls() {
        let two = [named("a.test"), named("b.test")].concat();
        let several = extension(0, &sized(&[&[0][..], &sized(b"a.test"), &[0], &sized(b"b.test")].concat()));
        let other = extension(0, &sized(&[&[1][..], &sized(b"a.test")].concat()));
        let long = extension(0, &[&sized(&[&[0][..], &sized(b"a.test")].concat())[..], b"x"].concat());
        for extensions in [two, several, other, long, vec![0, 0, 0], vec![0, 10, 0, 9, 1], extension(0, &[])]
        {
            assert_eq!(told(&extensions), Err(NotTls), "{extensions:?}");
        }
        let message = handshake(&body(&named("a.test")));
        let more = [&message[..], &message].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0-x",
            &[22, 2],
            &[22, 3, 1, 0, 0],
            &[0x80, 0x2e, 1],
            &record(&more),
            &record(&[2, 0, 0, 1, 0]),
        ] {
            assert_eq!(read(bytes), Err(NotTls), "{bytes:?}");
        }
        assert_eq!(read(&record(&[1, 1, 0, 0])), Err(NotTls));
        let drops: Vec<u8> = message.chunks(1).flat_map(record).collect();
        assert_eq!(read(&drops), Err(NotTls));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let _ = read(&record(&bytes));
            let _ = told(&bytes);
        }

        #[test]
        fn what_is_not_whole_yet_is_never_refused(name in "[a-z]{1,40}\\.test", at: prop::sample::Index) {
            let bytes = hello(&name);
            let end = at.index(bytes.len());
            prop_assert_eq!(read(&bytes[..end]), Ok(None));
        }
    }
}
