//! Which host a request of HTTP to a proxy is for. Pure.

/// Longest method, and the most in which a host and its port end.
const METHOD_BYTES: usize = 32;
const MOST_BYTES: usize = 1024;

const CONNECT: &[u8] = b"CONNECT";
const HTTP: &[u8] = b"http://";
pub(super) const PORT: u16 = 80;

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
