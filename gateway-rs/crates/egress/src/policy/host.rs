use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name and longest label (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host as rules name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name: small letters, A-labels, no final dot. Never one that some resolver would read as an address.
    Name(Box<str>),
    /// An address.
    Address(IpAddr),
}

/// Host and port that a program asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// Why a text names no host, or no host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// It has characters, labels or a length that no host name has.
    #[error("this is no host name: give letters, digits, `-`, `_` and dots, international names as A-labels")]
    Name,
    /// Some resolvers read it as an address, in a notation that this proxy does not accept.
    #[error("write addresses in their usual notation, such as 192.0.2.7 or [2001:db8::7]")]
    OddAddress,
    /// The port is missing, 0 or too large.
    #[error("give a port from 1 to 65535")]
    Port,
    /// A user name stands before the host.
    #[error("give no user name before the host")]
    UserInfo,
}

impl Host {
    /// Reads a name or an address; that of version 6 without brackets. A final dot is removed, so that `a.test` and
    /// `a.test.` are one name.
    ///
    /// # Errors
    /// [`InvalidHost`]
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        if text.contains('@') {
            return Err(InvalidHost::UserInfo);
        }
        if text.contains(':') {
            // A zone (`fe80::1%eth0`) is refused by the parser.
            let address = text.parse::<Ipv6Addr>().map_err(|_| InvalidHost::OddAddress)?;
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) {
            return Err(InvalidHost::Name);
        }
        if !ends_in_number(name) {
            return Ok(Self::Name(name.to_ascii_lowercase().into()));
        }
        // Only four decimal numbers without leading zeros: `0177.1`, `127.1` and `2130706433` are loopback to others.
        let address = text.parse::<Ipv4Addr>().map_err(|_| InvalidHost::OddAddress)?;
        Ok(Self::Address(address.into()))
    }
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether a name's last label is a number, decimal or hexadecimal: then it is an address to some resolver, and never a
/// name of the public DNS (URL standard, "ends in a number").
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl Target {
    /// Reads `HOST:PORT`, an address of version 6 in brackets. `port` is used where the text has none.
    ///
    /// # Errors
    /// [`InvalidHost`]
    pub fn parse(text: &str, port: Option<u16>) -> Result<Self, InvalidHost> {
        if text.contains('@') {
            return Err(InvalidHost::UserInfo);
        }
        let (host, given) = split(text)?;
        let host = host?;
        let port = match given {
            Some(given) => number(given)?,
            None => port.ok_or(InvalidHost::Port)?,
        };
        Ok(Self { host, port })
    }
}

type Halves<'a> = (Result<Host, InvalidHost>, Option<&'a str>);

fn split(text: &str) -> Result<Halves<'_>, InvalidHost> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(InvalidHost::OddAddress)?;
        let host = address.parse::<Ipv6Addr>().map_err(|_| InvalidHost::OddAddress);
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':').ok_or(InvalidHost::Port)?),
        };
        return Ok((host.map(|address| Host::Address(address.into())), port));
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    Ok((Host::parse(host), port))
}

/// Digits alone: Rust's parser would take a sign.
fn number(text: &str) -> Result<u16, InvalidHost> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let port = digits.then(|| text.parse().ok()).flatten();
    port.filter(|port| *port != 0).ok_or(InvalidHost::Port)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Result<Host, InvalidHost> {
        Ok(Host::Name(text.into()))
    }

    #[test]
    fn a_host_has_one_notation() {
        for text in ["pypi.org", "PyPI.org", "pypi.org.", "PYPI.ORG."] {
            assert_eq!(Host::parse(text), name("pypi.org"));
        }
        assert_eq!(Host::parse("_dmarc.a-b.test"), name("_dmarc.a-b.test"));
        assert_eq!(Host::parse("0x7f.test"), name("0x7f.test"));
        assert_eq!(Host::parse("192.0.2.7").unwrap().to_string(), "192.0.2.7");
        assert_eq!(Host::parse("2001:DB8::0:7").unwrap().to_string(), "2001:db8::7");
    }

    #[test]
    fn other_notations_of_addresses_are_no_names() {
        for text in [
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.1.",
            "1.2.3.4.5",
            "a.1",
            "a.0x1",
            "a.0x",
            "256.1.1.1",
            "fe80::1%eth0",
            "::ffff:127.0.0.1x",
            "1:2",
        ] {
            assert_eq!(Host::parse(text), Err(InvalidHost::OddAddress), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(64);
        for text in [
            "",
            ".",
            "a..b",
            "a.b..",
            ".a",
            "a b",
            "a/b",
            "a%2eb",
            "bücher.test",
            "a\0.test",
            "a\r\n.test",
            &long,
        ] {
            assert_eq!(Host::parse(text), Err(InvalidHost::Name), "{text:?}");
        }
        assert_eq!(Host::parse(&["a"; 127].join(".")), name(&["a"; 127].join(".")));
        assert_eq!(Host::parse(&["a"; 128].join(".")), Err(InvalidHost::Name));
        assert_eq!(Host::parse("user@a.test"), Err(InvalidHost::UserInfo));
    }

    #[test]
    fn a_target_has_a_port() {
        let target = |text| Target::parse(text, None);
        assert_eq!(target("A.test:443").unwrap().to_string(), "a.test:443");
        assert_eq!(target("[2001:db8::7]:80").unwrap().to_string(), "[2001:db8::7]:80");
        assert_eq!(Target::parse("a.test", Some(80)).unwrap().to_string(), "a.test:80");
        for text in [
            "a.test",
            "a.test:",
            "a.test:0",
            "a.test:65536",
            "a.test:+80",
            "a.test: 80",
            "a.test:80:80",
            "[::1]",
            "[::1]80",
        ] {
            assert_eq!(target(text), Err(InvalidHost::Port), "{text}");
        }
        assert_eq!(target("me@a.test:80"), Err(InvalidHost::UserInfo));
        assert_eq!(target("[::1:80"), Err(InvalidHost::OddAddress));
        assert_eq!(target("[127.0.0.1]:80"), Err(InvalidHost::OddAddress));
        assert_eq!(target("::1:80"), Err(InvalidHost::Name));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_so_that_it_is_read_again(text in "[a-zA-Z0-9.:_\\[\\]x-]{0,20}") {
            if let Ok(target) = Target::parse(&text, None) {
                prop_assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
            }
        }

        #[test]
        fn no_name_is_an_address_to_the_system(text in "[0-9a-fxX.]{1,16}") {
            if let Ok(Host::Name(name)) = Host::parse(&text) {
                prop_assert!(name.parse::<IpAddr>().is_err());
                let last = name.rsplit('.').next().unwrap();
                prop_assert!(!last.bytes().all(|b| b.is_ascii_digit()));
            }
        }
    }
}
