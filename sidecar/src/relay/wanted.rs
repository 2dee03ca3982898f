//! What a connection that is refused has asked for: the workload's words, made short and printable. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::http::{self, Request, split};

/// Longest host that is kept; names have 253 bytes at most.
pub(super) const HOST_BYTES: usize = 255;

/// By which protocol a program has asked the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A request in absolute form.
    Http,
    /// A `CONNECT`.
    Connect,
    /// SOCKS5.
    Socks5,
}

/// A host that a program has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) protocol: Protocol,
    /// Printable ASCII, at least one byte and at most [`HOST_BYTES`].
    pub(super) host: String,
    pub(super) port: u16,
}

impl Protocol {
    /// Its name, as in the attempts of egress.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Connect => "connect",
            Self::Socks5 => "socks5",
        }
    }

    /// Of the byte of a message.
    pub(super) fn of(byte: u8) -> Option<Self> {
        [Self::Http, Self::Connect, Self::Socks5].into_iter().find(|one| *one as u8 == byte)
    }
}

impl Wanted {
    /// A host as a program has written it; `None` where it has named none.
    pub(super) fn new(protocol: Protocol, host: &[u8], port: u16) -> Option<Self> {
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
        let host: String = host.iter().take(HOST_BYTES).map(shown).collect();
        (!host.is_empty()).then_some(Self { protocol, host, port })
    }

    /// Of what a program has sent of an HTTP request; `None` where that names no host and port.
    pub(super) fn of_http(bytes: &[u8]) -> Option<Self> {
        let Request::For { connect, authority } = http::request(bytes) else { return None };
        let (protocol, default) =
            if connect { (Protocol::Connect, None) } else { (Protocol::Http, Some(http::PORT)) };
        // A byte of another encoding is one character, which is shown as a question mark.
        let target: String = authority.iter().map(|byte| char::from(*byte)).collect();
        let target = target.rsplit_once('@').map_or(target.as_str(), |(_, target)| target);
        let (host, port) = split(target, default)?;
        let bytes: Vec<u8> = host.chars().map(|one| u8::try_from(one).unwrap_or(b'?')).collect();
        Self::new(protocol, &bytes, port)
    }

    /// Of an address and a port of SOCKS5.
    pub(super) fn of_v4(address: [u8; 4], port: u16) -> Option<Self> {
        Self::new(Protocol::Socks5, Ipv4Addr::from(address).to_string().as_bytes(), port)
    }

    /// The same of version 6.
    pub(super) fn of_v6(address: [u8; 16], port: u16) -> Option<Self> {
        Self::new(Protocol::Socks5, Ipv6Addr::from(address).to_string().as_bytes(), port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &[u8]) -> Option<String> {
        let Wanted { protocol, host, port } = Wanted::of_http(text)?;
        Some(format!("{} {host} {port}", protocol.name()))
    }

    #[test]
    fn a_host_is_told_as_it_was_asked_for() {
        for (asked, told) in [
            ("CONNECT example.org:443 HTTP/1.1\r\n", "connect example.org 443"),
            ("GET http://example.org/a HTTP/1.1\r\n", "http example.org 80"),
            ("GET http://me:secret@Example.org:8080/ ", "http Example.org 8080"),
            ("CONNECT [2001:db8::1]:22 ", "connect 2001:db8::1 22"),
        ] {
            assert_eq!(shown(asked.as_bytes()).as_deref(), Some(told), "{asked}");
        }
        for asked in
            ["GET / HTTP/1.1\r\nHost: a\r\n", "\x16\x03", "CONNECT a ", "CONNECT :1 ", "GET http:///"]
        {
            assert_eq!(shown(asked.as_bytes()), None, "{asked}");
        }
        assert_eq!(shown(b"CONNECT a\x1b[2Jb:1 ").as_deref(), Some("connect a?[2Jb 1"));
        assert_eq!(shown(b"CONNECT \xff\xfe:1 ").as_deref(), Some("connect ?? 1"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_short_and_printable(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for begin in ["", "CONNECT ", "GET http://"] {
                if let Some(wanted) = Wanted::of_http(&[begin.as_bytes(), &bytes, b" "].concat()) {
                    prop_assert!((1..=HOST_BYTES).contains(&wanted.host.len()));
                    prop_assert!(wanted.host.bytes().all(|byte| byte.is_ascii_graphic()));
                }
            }
        }
    }
}
