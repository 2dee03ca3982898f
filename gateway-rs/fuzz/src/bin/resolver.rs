//! Queries to the resolver in a sandbox.
#![no_main]

fuzz::target!(
    [b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01\x07example\x03org\0\0\x01\0\x01\0\0\x29\x10\0\0\0\0\0\0\0"
        .as_slice()],
    sidecar::relay::check_answer
);
