use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a unix socket: `sun_path` has 108 bytes, the last one is NUL (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Where a server listens: a unix socket or a TCP port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// `unix:/PATH`
    Unix(PathBuf),
    /// `http://HOST:PORT`; an IPv6 host without its brackets.
    Tcp {
        /// Host name or IP address.
        host: String,
        /// Port, not 0.
        port: u16,
    },
}

/// The text is not an address; the message states the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be `unix:/PATH` (absolute, at most {MAX_SOCKET_PATH_BYTES} bytes) or `http://HOST:PORT`")]
pub struct InvalidAddress;

impl Address {
    /// The IP address; `None` for a name and for a unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp { host, .. } => host.parse().ok(),
            Self::Unix(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = path.starts_with('/') && path.len() <= MAX_SOCKET_PATH_BYTES && !path.contains('\0');
            return fits.then(|| Self::Unix(path.into())).ok_or(InvalidAddress);
        }
        let authority = text.strip_prefix("http://").ok_or(InvalidAddress)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or(InvalidAddress)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(InvalidAddress)?;
        Ok(Self::Tcp { host: host_name(host)?.to_owned(), port })
    }
}

/// The host without the brackets of an IPv6 address.
fn host_name(host: &str) -> Result<&str, InvalidAddress> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(bare) = bare {
        return bare.parse::<std::net::Ipv6Addr>().map(|_| bare).map_err(|_| InvalidAddress);
    }
    let valid = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    valid.then_some(host).ok_or(InvalidAddress)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn both_forms_are_read_and_written_back() {
        for text in
            ["unix:/run/a.sock", "http://10.0.0.7:7070", "http://sb-1.zone.local:80", "http://[fd00::1]:7070"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = format!("unix:/{}", "a".repeat(107));
        for text in [
            "",
            "unix:",
            "unix:relative",
            "http://",
            "http://host",
            "http://host:0",
            "http://host:70000",
            "http://:80",
            "https://host:80",
            "http://a b:80",
            "http://[::zz]:80",
            "http://h/x:80",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
