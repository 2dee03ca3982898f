//! Messages of a client of SOCKS5.
#![no_main]

use egress::policy::Target;
use egress::socks5::{greeting, request};

fn check(bytes: &[u8]) {
    if let Ok(Some(((), length))) = greeting(bytes) {
        assert!(length <= bytes.len());
    }
    let whole = request(bytes);
    if let Ok(Some((target, length))) = &whole {
        assert!(*length <= bytes.len());
        assert_eq!(Target::parse(&target.to_string(), None).as_ref(), Ok(target));
    }
    // What has begun is read as it will be, or waits.
    for end in 0..bytes.len().min(300) {
        match request(&bytes[..end]) {
            Ok(None) => {}
            decided => assert_eq!(decided, whole),
        }
    }
}

fuzz::target!(
    [
        b"\x05\x01\0".as_slice(),
        b"\x05\x01\0\x01\x01\x02\x03\x04\x01\xbb",
        b"\x05\x01\0\x03\x06a.test\0\x50",
        b"\x05\x01\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50",
    ],
    check
);
