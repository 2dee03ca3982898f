//! The first message of a TLS client.
#![no_main]

use egress::client_hello::read;

const SHORT: usize = 64;

fn check(bytes: &[u8]) {
    let whole = read(bytes);
    if let Ok(Some(hello)) = &whole {
        assert!(hello.server_name.as_ref().is_none_or(|name| bytes.len() > name.len()));
    }
    // What is not there as a whole yet is never refused for that, and what is decided stays so.
    for end in (0..bytes.len()).take(SHORT).chain(bytes.len().saturating_sub(SHORT)..bytes.len()) {
        match (read(&bytes[..end]), &whole) {
            (Err(_), whole) => assert!(whole.is_err()),
            (Ok(Some(hello)), whole) => assert_eq!(whole, &Ok(Some(hello))),
            (Ok(None), _) => {}
        }
    }
}

/// A message with extensions, in records of a size.
fn hello(extensions: &[u8], record_bytes: usize) -> Vec<u8> {
    let sized =
        |bytes: &[u8]| [&u16::try_from(bytes.len()).expect("short").to_be_bytes()[..], bytes].concat();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &sized(extensions)].concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    message.chunks(record_bytes).flat_map(|part| [&[22, 3, 1][..], &sized(part)].concat()).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let name = b"\0\0\0\x0b\0\x09\0\0\x06a.test";
    let hidden = b"\0\x0a\0\x04\0\x02\0\x1d\xfe\x0d\0\x01\0";
    vec![hello(name, 512), hello(&[&name[..], hidden].concat(), 40), hello(b"", 512)]
}

fuzz::target!(seeds().iter().map(Vec::as_slice).collect::<Vec<_>>(), check);
