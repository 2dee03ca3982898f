//! What a program has asked the proxy for, in each of its protocols.

use std::net::SocketAddr;

use bytes::BytesMut;

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
