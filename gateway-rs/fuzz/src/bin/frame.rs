//! Orders and reports on the spawner's socket.
#![no_main]

use sidecar::spawner::frame;

fuzz::target!(
    [
        b"\x00\x01\0\0\0\0\0\0\0\x03\0\0\0e-1".as_slice(),
        b"\x01\x01\0\0\0\0\0\0\0\x0f\0\0\0\x01",
        b"\x02\x01\0\0\0\0\0\0\0",
    ],
    frame::check_decoding
);
