use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, LOCATION, ORIGIN, SET_COOKIE,
    STRICT_TRANSPORT_SECURITY, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::credential::TOKEN_NAME;
use super::place::Place;
use program::hop_by_hop::strip;

/// Headers by which clients and proxies say where a request came from. They are removed, so that the server gets only
/// the gateway's.
const FORWARDED_BY: [&str; 8] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];

/// Headers by which a server speaks for its whole origin, which by path it shares with the gateway and other
/// sandboxes.
const OF_THE_ORIGIN: [HeaderName; 6] = [
    STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("service-worker-allowed"),
];

/// How a client reached the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) host: String,
    /// `https` where a proxy before the gateway terminates TLS.
    pub(super) scheme: &'static str,
}

impl Outside {
    pub(super) fn of(head: &Parts) -> Self {
        let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = named.or(head.uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
        let secure = head.headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
        Self { host: host.to_owned(), scheme: if secure { "https" } else { "http" } }
    }
}

/// Whether the client asks for a WebSocket, the only protocol that a connection may be switched to.
pub(super) fn wants_websocket(head: &Parts) -> bool {
    let upgrade =
        head.headers.get(UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    upgrade && head.version == Version::HTTP_11
}

/// Turns a client's headers into those of the request to the server. The server sees a client on its own machine;
/// the `X-Forwarded-*` headers show where the client really is. Call it after the credentials were taken out.
pub(super) fn to_server(
    headers: &mut HeaderMap,
    place: &Place,
    outside: &Outside,
    peer: IpAddr,
    switch: bool,
) {
    strip(headers);
    for name in FORWARDED_BY {
        headers.remove(name);
    }
    // The body's own framing gives the length; the header is written anew from it.
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    let host = format!("localhost:{}", place.port);
    let own_origin = format!("{}://{}", outside.scheme, outside.host);
    if headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().eq_ignore_ascii_case(own_origin.as_bytes()))
    {
        set(headers, ORIGIN, &format!("http://{host}"));
    }
    set(headers, HOST, &host);
    set(headers, HeaderName::from_static("x-forwarded-for"), &peer.to_canonical().to_string());
    set(headers, HeaderName::from_static("x-forwarded-host"), &outside.host);
    set(headers, HeaderName::from_static("x-forwarded-proto"), outside.scheme);
    if !place.prefix.is_empty() {
        set(headers, HeaderName::from_static("x-forwarded-prefix"), &place.prefix);
    }
    if switch {
        switching(headers);
    } else {
        set(headers, CONNECTION, "close");
    }
}

/// Turns a server's headers into those of the response: paths as the client sees them, cookies for this port only.
pub(super) fn to_client(headers: &mut HeaderMap, place: &Place) {
    strip(headers);
    headers.remove(FORWARDED);
    if let Some(location) = headers.get(LOCATION).and_then(|location| outside_of(location, place)) {
        headers.insert(LOCATION, location);
    }
    if !place.prefix.is_empty() {
        for name in OF_THE_ORIGIN {
            headers.remove(name);
        }
    }
    let cookies: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().filter_map(|cookie| confined(cookie, place)).collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
}

/// Sets the headers that switch a connection to a WebSocket.
pub(super) fn switching(headers: &mut HeaderMap) {
    set(headers, CONNECTION, "upgrade");
    set(headers, UPGRADE, "websocket");
}

/// The cookie that keeps the token for the pages of one port; scripts cannot read it.
pub(super) fn token_cookie(token: &str, place: &Place, outside: &Outside) -> Option<HeaderValue> {
    let secure = if outside.scheme == "https" { "; Secure" } else { "" };
    let path = &place.prefix;
    HeaderValue::try_from(format!("{TOKEN_NAME}={token}; Path={path}/; HttpOnly; SameSite=Lax{secure}")).ok()
}

/// Translates a redirect within the server to the path that clients use; `None` if it is right as it is.
fn outside_of(location: &HeaderValue, place: &Place) -> Option<HeaderValue> {
    let text = location.to_str().ok()?;
    let own = format!("http://localhost:{}", place.port);
    let path = text.strip_prefix(&own).unwrap_or(text);
    let path = if path.is_empty() { "/" } else { path };
    if !path.starts_with('/') || path.starts_with("//") {
        return None;
    }
    HeaderValue::try_from(format!("{}{path}", place.prefix)).ok()
}

/// Limits a cookie to this port's pages; `None` for one with the name of the token cookie.
fn confined(cookie: &HeaderValue, place: &Place) -> Option<HeaderValue> {
    let text = std::str::from_utf8(cookie.as_bytes()).ok()?;
    let mut parts = text.split(';').map(str::trim);
    // A browser sends a cookie without a name as its value alone.
    let pair = parts.next()?.trim_start_matches(['=', ' ', '\t']);
    if pair.split('=').next().map(str::trim) == Some(TOKEN_NAME) {
        return None;
    }
    let mut path = "/";
    let mut kept = vec![pair.to_owned()];
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "domain" => {}
            "path" => path = Some(value.trim()).filter(|path| path.starts_with('/')).unwrap_or("/"),
            _ => kept.push(part.to_owned()),
        }
    }
    kept.push(format!("Path={}{path}", place.prefix));
    HeaderValue::try_from(kept.join("; ")).ok()
}

/// Invalid values (a host with a line break) do not occur: each was a header value before, or is made of numbers.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    match HeaderValue::from_str(value) {
        Ok(value) => drop(headers.insert(name, value)),
        Err(_) => drop(headers.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_path() -> Place {
        Place::of_path("/v1/sandboxes/sb-1/ports/80/http/a").unwrap()
    }

    fn by_host() -> Place {
        Place { prefix: String::new(), ..by_path() }
    }

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn sent(headers: &[(&'static str, &str)], switch: bool) -> HeaderMap {
        let mut headers = map(headers);
        let outside = Outside { host: "gw.example.com".into(), scheme: "https" };
        to_server(&mut headers, &by_path(), &outside, "::ffff:10.0.0.1".parse().unwrap(), switch);
        headers
    }

    #[test]
    fn the_server_sees_its_own_machine_and_our_word_of_the_way() {
        let headers = sent(
            &[
                ("host", "gw.example.com"),
                ("x-forwarded-for", "1.2.3.4"),
                ("forwarded", "for=1.2.3.4"),
                ("x-real-ip", "1.2.3.4"),
                ("connection", "keep-alive, x-private"),
                ("x-private", "1"),
                ("transfer-encoding", "chunked"),
                ("content-length", "5"),
                ("accept", "*/*"),
            ],
            false,
        );
        let expected = map(&[
            ("host", "localhost:80"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-host", "gw.example.com"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/v1/sandboxes/sb-1/ports/80/http"),
            ("connection", "close"),
            ("accept", "*/*"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn only_the_gateways_own_origin_becomes_the_servers() {
        for (origin, expected) in [
            ("https://gw.example.com", "http://localhost:80"),
            ("http://gw.example.com", "http://gw.example.com"),
            ("https://evil.example.com", "https://evil.example.com"),
            ("null", "null"),
        ] {
            assert_eq!(sent(&[("origin", origin)], true)["origin"], expected);
        }
        let switched = sent(&[("connection", "Upgrade"), ("upgrade", "WebSocket")], true);
        assert_eq!(
            (&switched["connection"], &switched["upgrade"]),
            (&"upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
        assert!(!sent(&[("connection", "Upgrade"), ("upgrade", "h2c")], false).contains_key("upgrade"));
    }

    #[test]
    fn redirects_stay_within_the_port() {
        for (location, by_path_, by_host_) in [
            ("/login?x=/y", Some("/v1/sandboxes/sb-1/ports/80/http/login?x=/y"), Some("/login?x=/y")),
            ("http://localhost:80/a", Some("/v1/sandboxes/sb-1/ports/80/http/a"), Some("/a")),
            ("http://localhost:80", Some("/v1/sandboxes/sb-1/ports/80/http/"), Some("/")),
            ("http://localhost:8000/a", None, None),
            ("https://example.com/", None, None),
            ("//example.com/", None, None),
            ("next", None, None),
        ] {
            let location = location.parse().unwrap();
            let text = |place| outside_of(&location, &place).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(text(by_path()).as_deref(), by_path_, "{location:?}");
            assert_eq!(text(by_host()).as_deref(), by_host_, "{location:?}");
        }
    }

    #[test]
    fn cookies_are_for_the_port_that_set_them() {
        for (cookie, by_path_, by_host_) in [
            ("a=b", Some("a=b; Path=/v1/sandboxes/sb-1/ports/80/http/"), Some("a=b; Path=/")),
            (
                "a=b;path=/x; HttpOnly ;DOMAIN=example.com",
                Some("a=b; HttpOnly; Path=/v1/sandboxes/sb-1/ports/80/http/x"),
                Some("a=b; HttpOnly; Path=/x"),
            ),
            ("a=b; Path=x; path=", Some("a=b; Path=/v1/sandboxes/sb-1/ports/80/http/"), Some("a=b; Path=/")),
            ("rollbox_token=evil", None, None),
            (" rollbox_token = evil; Path=/", None, None),
            ("=rollbox_token=evil", None, None),
        ] {
            let cookie = cookie.parse().unwrap();
            let text = |place| confined(&cookie, &place).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(text(by_path()).as_deref(), by_path_, "{cookie:?}");
            assert_eq!(text(by_host()).as_deref(), by_host_, "{cookie:?}");
        }
    }

    #[test]
    fn what_a_server_says_of_its_origin_does_not_pass_by_path() {
        for (place, passes) in [(by_path(), false), (by_host(), true)] {
            let mut headers = map(&[("service-worker-allowed", "/"), ("etag", "1"), ("keep-alive", "x")]);
            to_client(&mut headers, &place);
            assert_eq!(headers.contains_key("service-worker-allowed"), passes);
            assert_eq!((headers.contains_key("etag"), headers.contains_key("keep-alive")), (true, false));
        }
    }
}
