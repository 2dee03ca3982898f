use std::net::IpAddr;

/// The address of a request's client; in the request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);
