//! SOCKS5 (RFC 1928), as far as a proxy without passwords speaks it: `CONNECT` with names and addresses. Pure.

use std::net::IpAddr;

use crate::policy::{Host, InvalidHost, Target};

/// The first byte of either message.
pub const VERSION: u8 = 5;

/// No password.
const NONE: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const V4: u8 = 1;
const NAME: u8 = 3;
const V6: u8 = 4;

/// A message and how many bytes it has; `None` while it is not there as a whole.
pub type Read<T> = Result<Option<(T, usize)>, Broken>;

/// A message that is not one of this protocol, or that is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It is not one of version 5.
    #[error("this is not SOCKS version 5")]
    Version,
    /// The client has to have a password, or something else.
    #[error("this proxy asks for no password; the client does not offer that")]
    Method,
    /// `BIND`, `UDP ASSOCIATE`, or something else.
    #[error("this proxy makes connections alone, it neither listens nor passes datagrams")]
    Command,
    /// An address of no known kind.
    #[error("this is no kind of address of SOCKS5")]
    AddressKind,
    /// The host.
    #[error("{0}")]
    Host(#[from] InvalidHost),
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The connection stands.
    Succeeded = 0,
    /// Something else.
    Failed = 1,
    /// The policy does not allow it.
    NotAllowed = 2,
    /// The name has no address, or the server does not answer.
    Unreachable = 4,
    /// No other command than `CONNECT` is served.
    NoCommand = 7,
    /// No other kind of address is.
    NoAddressKind = 8,
}

/// Reads what a client begins with: the ways in which it can say who it is.
///
/// # Errors
/// [`Broken`]
pub fn greeting(bytes: &[u8]) -> Read<()> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(Broken::Version);
    }
    let [_, count, rest @ ..] = bytes else { return Ok(None) };
    let count = usize::from(*count);
    let Some(methods) = rest.get(..count) else { return Ok(None) };
    if methods.contains(&NONE) { Ok(Some(((), 2 + count))) } else { Err(Broken::Method) }
}

/// Reads a request.
///
/// # Errors
/// [`Broken`]
pub fn request(bytes: &[u8]) -> Read<Target> {
    if bytes.first().is_some_and(|version| *version != VERSION) {
        return Err(Broken::Version);
    }
    let [_, command, _, kind, rest @ ..] = bytes else { return Ok(None) };
    if *command != CONNECT {
        return Err(Broken::Command);
    }
    let (host, rest) = match *kind {
        V4 => match rest.split_first_chunk::<4>() {
            Some((octets, rest)) => (Host::Address(IpAddr::from(*octets)), rest),
            None => return Ok(None),
        },
        V6 => match rest.split_first_chunk::<16>() {
            Some((octets, rest)) => (Host::Address(IpAddr::from(*octets)), rest),
            None => return Ok(None),
        },
        NAME => match rest.split_first().and_then(|(length, rest)| rest.split_at_checked((*length).into())) {
            Some((name, rest)) => (named(name)?, rest),
            None => return Ok(None),
        },
        _ => return Err(Broken::AddressKind),
    };
    let Some((port, rest)) = rest.split_first_chunk() else { return Ok(None) };
    match u16::from_be_bytes(*port) {
        0 => Err(InvalidHost::Port.into()),
        port => Ok(Some((Target { host, port }, bytes.len() - rest.len()))),
    }
}

fn named(name: &[u8]) -> Result<Host, Broken> {
    let name = std::str::from_utf8(name).map_err(|_| InvalidHost::Name)?;
    Ok(Host::parse(name)?)
}

/// The answer to a greeting.
pub fn chosen(accepted: bool) -> [u8; 2] {
    [VERSION, if accepted { NONE } else { NO_METHOD }]
}

/// The answer to a request; the address in it, of this side's socket, is not told.
pub fn reply(reply: Reply) -> [u8; 10] {
    [VERSION, reply as u8, 0, V4, 0, 0, 0, 0, 0, 0]
}

impl Broken {
    /// What the answer to a request says.
    pub fn reply(self) -> Reply {
        match self {
            Self::Version | Self::Method => Reply::Failed,
            Self::Command => Reply::NoCommand,
            Self::AddressKind => Reply::NoAddressKind,
            Self::Host(InvalidHost::OddAddress) => Reply::NotAllowed,
            Self::Host(_) => Reply::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn target(bytes: &[u8]) -> String {
        let (target, length) = request(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        for end in 0..length {
            assert_eq!(request(&bytes[..end]), Ok(None), "{end}");
        }
        target.to_string()
    }

    #[test]
    fn names_and_addresses_are_asked_for() {
        assert_eq!(target(&[&[5, 1, 0, 3, 6][..], b"A.Test", &[1, 187]].concat()), "a.test:443");
        assert_eq!(target(&[5, 1, 0, 1, 192, 0, 2, 7, 0, 80]), "192.0.2.7:80");
        assert_eq!(
            target(&[&[5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 80]].concat()),
            "[::1]:80"
        );
        assert_eq!(target(&[&[5, 1, 0, 3, 9][..], b"127.0.0.1", &[0, 80]].concat()), "127.0.0.1:80");
    }

    #[test]
    fn what_follows_a_message_is_not_part_of_it() {
        assert_eq!(greeting(&[5, 1, 0, 5, 1]), Ok(Some(((), 3))));
        assert_eq!(request(&[5, 1, 0, 1, 1, 1, 1, 1, 0, 80, 22]).unwrap().unwrap().1, 10);
    }

    #[test]
    fn everything_else_is_refused() {
        assert_eq!(greeting(&[4]), Err(Broken::Version));
        assert_eq!(greeting(&[5, 1, 2]), Err(Broken::Method));
        assert_eq!(greeting(&[5, 0]), Err(Broken::Method));
        assert_eq!(greeting(&[5, 2, 2]), Ok(None));
        assert_eq!(request(&[4]), Err(Broken::Version));
        for command in [0, 2, 3] {
            assert_eq!(request(&[5, command, 0, 1]), Err(Broken::Command));
        }
        assert_eq!(request(&[5, 1, 0, 2]), Err(Broken::AddressKind));
        assert_eq!(request(&[5, 1, 0, 1, 1, 1, 1, 1, 0, 0]), Err(Broken::Host(InvalidHost::Port)));
        let named = |name: &[u8]| {
            let length = u8::try_from(name.len()).unwrap();
            request(&[&[5, 1, 0, 3, length], name, &[0, 80]].concat())
        };
        assert_eq!(named(b"127.1"), Err(Broken::Host(InvalidHost::OddAddress)));
        for name in [&b""[..], b"a\0.test", b"\xff.test", b"a.test:80\r\n"] {
            assert!(matches!(named(name), Err(Broken::Host(_))), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            let _ = greeting(&bytes);
            let _ = request(&bytes);
            if let Ok(Some((_, length))) = request(&[&[5, 1, 0, 3][..], &bytes].concat()) {
                prop_assert!(length <= bytes.len() + 4);
            }
        }
    }
}
