//! First messages of TLS clients.

const SERVER_NAME: u16 = 0;
/// The extension of an encrypted client hello.
pub const ENCRYPTED: u16 = 0xfe0d;

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

pub fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(content)].concat()
}

fn named(name: &str) -> Vec<u8> {
    extension(SERVER_NAME, &sized(&[&[0][..], &sized(name.as_bytes())].concat()))
}

/// Of a client that wants this server, in one record.
pub fn hello(name: &str) -> Vec<u8> {
    hello_with(&named(name))
}

/// The same with further extensions.
pub fn hello_and(name: &str, extensions: &[u8]) -> Vec<u8> {
    hello_with(&[&named(name), extensions].concat())
}

/// With these extensions alone.
pub fn hello_with(extensions: &[u8]) -> Vec<u8> {
    let head = [&[3, 3][..], &[7; 32], &[0], &sized(&[0x13, 1]), &[1, 0]].concat();
    let body = [&head[..], &sized(extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}
