//! The environment variables by which programs find the proxy. Pure.

use super::frame::OsBytes;

/// The schemes' variables. That for all schemes has `http://` too: many clients do not know `socks5://`.
const SCHEMES: [&str; 3] = ["http_proxy", "https_proxy", "all_proxy"];
/// What is in the sandbox itself is asked directly.
const WITHOUT: (&str, &str) = ("no_proxy", "localhost,127.0.0.1,::1");

/// The variables for a proxy on `port`, in both cases: some programs read the one, some the other.
pub(super) fn variables(port: u16) -> Vec<(OsBytes, OsBytes)> {
    let proxy = format!("http://127.0.0.1:{port}");
    let all = SCHEMES.map(|name| (name, &*proxy)).into_iter().chain([WITHOUT]);
    all.flat_map(|(name, value)| {
        [name.to_owned(), name.to_uppercase()].map(|name| (name.into(), value.into()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_cases_name_the_proxy_and_loopback_is_excepted() {
        let found = variables(3128);
        assert_eq!(found.len(), 8);
        for (name, value) in [
            ("http_proxy", "http://127.0.0.1:3128"),
            ("HTTPS_PROXY", "http://127.0.0.1:3128"),
            ("ALL_PROXY", "http://127.0.0.1:3128"),
            ("NO_PROXY", "localhost,127.0.0.1,::1"),
        ] {
            assert!(found.contains(&(name.into(), value.into())), "{name}");
        }
    }
}
