//! Fuzzes the decoders of a file worker's pipes: any bytes are refused, or decode to a value that survives encoding and
//! decoding.
//! Run it with `RUSTC_BOOTSTRAP=1 cargo fuzz run job`. The crate's own tests call the same function with generated
//! bytes on the stable compiler.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sidecar::files::frames::check_decoding(bytes));
