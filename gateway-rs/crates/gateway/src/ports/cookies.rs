//! Cookies of a port: the one with the token, and those of its server.

use http::HeaderValue;

use super::address::{Outside, below};
use super::credential::TOKEN_NAME;
use super::place::Place;

/// The cookie that keeps the token for the pages of one port; scripts cannot read it.
pub(super) fn token_cookie(token: &str, place: &Place, outside: &Outside) -> Option<HeaderValue> {
    let secure = if outside.scheme == "https" { "; Secure" } else { "" };
    let path = &place.prefix;
    HeaderValue::try_from(format!("{TOKEN_NAME}={token}; Path={path}/; HttpOnly; SameSite=Lax{secure}")).ok()
}

/// Limits a cookie to this port's pages, and to TLS exactly where the client has it; `None` for one with the name of the
/// token cookie.
pub(super) fn confined(cookie: &HeaderValue, place: &Place, outside: &Outside) -> Option<HeaderValue> {
    let text = std::str::from_utf8(cookie.as_bytes()).ok()?;
    let mut parts = text.split(';').map(str::trim);
    // A browser sends a cookie without a name as its value alone.
    let pair = parts.next()?.trim_start_matches(['=', ' ', '\t']);
    if pair.split('=').next().map(str::trim) == Some(TOKEN_NAME) {
        return None;
    }
    let mut path = "";
    let mut kept = vec![pair.to_owned()];
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "domain" | "secure" => {}
            "path" => path = value.trim(),
            other if outside.scheme == "http" && needs_tls(other, value) => {}
            _ => kept.push(part.to_owned()),
        }
    }
    kept.push(format!("Path={}", path_of(path, place)));
    if outside.scheme == "https" {
        kept.push("Secure".to_owned());
    }
    HeaderValue::try_from(kept.join("; ")).ok()
}

/// What browsers refuse a cookie for that is not `Secure`.
fn needs_tls(name: &str, value: &str) -> bool {
    name == "partitioned" || (name == "samesite" && value.trim().eq_ignore_ascii_case("none"))
}

/// The path as clients see it. A cookie without one is for the folder of the request (RFC 6265 section 5.1.4).
fn path_of(path: &str, place: &Place) -> String {
    let folder = place.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if path.starts_with('/') { path } else { folder };
    let rest = below(path, &place.prefix).unwrap_or(path);
    format!("{}{}", place.prefix, if rest.is_empty() { "/" } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/v1/sandboxes/sb-1/ports/80/http";

    fn set(cookie: &str, prefix: &str, path: &str, scheme: &'static str) -> Option<String> {
        let place =
            Place { sandbox_id: "sb-1".into(), port: 80, prefix: prefix.into(), path: path.into(), ip: None };
        let outside = Outside { host: "gw.example.com".into(), scheme };
        let value = confined(&HeaderValue::from_str(cookie).unwrap(), &place, &outside)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_are_for_the_port_that_set_them() {
        for (cookie, path) in [
            ("a=b", "Path=/"),
            ("a=b;path=/x; HttpOnly ;DOMAIN=example.com", "HttpOnly; Path=/x"),
            ("a=b; Path=x; path=", "Path=/"),
            (&format!("a=b; Path={PREFIX}/x"), "Path=/x"),
            (&format!("a=b; Path={PREFIX}"), "Path=/"),
        ] {
            let expected = format!("a=b; {}", path.replace("Path=", &format!("Path={PREFIX}")));
            assert_eq!(set(cookie, PREFIX, "/a", "http"), Some(expected), "{cookie}");
        }
        let by_host = set("a=b; Domain=localhost; Path=/x", "", "/a", "http");
        assert_eq!(by_host.as_deref(), Some("a=b; Path=/x"));
        for cookie in ["rollbox_token=evil", " rollbox_token = evil; Path=/", "=rollbox_token=evil"] {
            assert_eq!(set(cookie, PREFIX, "/a", "http"), None, "{cookie}");
        }
    }

    #[test]
    fn a_cookie_without_a_path_is_for_the_folder_of_the_request() {
        assert_eq!(set("a=b", PREFIX, "/x/y/z", "http"), Some(format!("a=b; Path={PREFIX}/x/y")));
        assert_eq!(set("a=b", "", "/x/", "http").as_deref(), Some("a=b; Path=/x"));
    }

    #[test]
    fn a_cookie_is_secure_exactly_where_the_client_has_tls() {
        for (cookie, plain, tls) in [
            ("a=b; Path=/", "a=b; Path=/", "a=b; Path=/; Secure"),
            ("a=b; Secure; Path=/", "a=b; Path=/", "a=b; Path=/; Secure"),
            (
                "a=b; SameSite=None; Secure; Partitioned; Path=/",
                "a=b; Path=/",
                "a=b; SameSite=None; Partitioned; Path=/; Secure",
            ),
            (
                "a=b; SameSite=Strict; Path=/",
                "a=b; SameSite=Strict; Path=/",
                "a=b; SameSite=Strict; Path=/; Secure",
            ),
        ] {
            let found = ["http", "https"].map(|scheme| set(cookie, "", "/", scheme).unwrap());
            assert_eq!(found, [plain, tls], "{cookie}");
        }
    }
}
