//! Fuzzes the decoders of the spawner's socket: any bytes are refused, or decode to one value that encodes to the same
//! bytes.
//! Run it with `RUSTC_BOOTSTRAP=1 cargo fuzz run frame`. The crate's own tests call the same function with generated
//! bytes on the stable compiler.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sidecar::spawner::frame::check_decoding(bytes));
