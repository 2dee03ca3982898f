//! Operations for a file worker, on its pipes.
#![no_main]

use sidecar::files::frames;

fuzz::target!(
    [b"\x00\x0a\x02/a".as_slice(), b"\x05\x0a\x02/a\x12\x02/b", b"\x0a\x0a\x02/a"],
    frames::check_decoding
);
