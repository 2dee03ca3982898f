//! Bodies of creates: settings stay in the gateway, and what it accepts of them is accepted by the sidecar.
#![no_main]

use sidecar::request::Defaults;

fn check(bytes: &[u8]) {
    for member in [false, true] {
        if let Some(request) = gateway::check_split(bytes, member) {
            Defaults::new(request).unwrap_or_else(|problem| panic!("the sidecar refuses them: {problem}"));
        }
    }
}

fuzz::target!(
    [
        br#"{"image": "i", "env": {"A": "1"}, "cwd": "/work", "user": "bob:staff", "ttl_ms": 1e3}"#
            .as_slice(),
        br#"{"count": 2, "sandbox": {"image": "i", "env": {"A": "1", "B": ""}, "cwd": "/"}}"#,
        br#"{"image": "i", "env": {"A": "1"}, "env": {}}"#,
    ],
    check
);
