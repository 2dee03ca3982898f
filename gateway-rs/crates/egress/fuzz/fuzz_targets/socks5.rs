//! Fuzzes the reading of SOCKS5, and of the hosts in it: `RUSTC_BOOTSTRAP=1 cargo fuzz run socks5`.
#![no_main]

use egress::policy::Target;
use egress::socks5;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(((), length))) = socks5::greeting(bytes) {
        assert!(length <= bytes.len());
    }
    if let Ok(Some((target, length))) = socks5::request(bytes) {
        assert!(length <= bytes.len());
        assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
    }
});
