//! Fuzzes the reading of a TLS client's first message: `RUSTC_BOOTSTRAP=1 cargo fuzz run client_hello`.
#![no_main]

use egress::client_hello;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = client_hello::read(bytes);
    // What is not there as a whole yet is never refused for that, and what is refused stays so.
    for end in 0..bytes.len().min(64) {
        match (client_hello::read(&bytes[..end]), &whole) {
            (Err(_), whole) => assert!(whole.is_err()),
            (Ok(Some(hello)), whole) => assert!(whole.is_err() || whole == &Ok(Some(hello))),
            (Ok(None), _) => {}
        }
    }
});
