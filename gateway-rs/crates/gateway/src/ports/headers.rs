use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, CONTENT_LENGTH, CONTENT_LOCATION,
    EXPECT, FORWARDED, HOST, LINK, LOCATION, ORIGIN, REFERER, REFRESH, SET_COOKIE, STRICT_TRANSPORT_SECURITY,
    TE, TRAILER, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::address::{self, Outside};
use super::cookies::confined;
use super::place::Place;
use program::hop_by_hop::strip;

/// Headers by which clients and proxies say where a request came from. They are removed, so that the server gets only
/// the gateway's.
const FORWARDED_BY: [&str; 20] = [
    "forwarded",
    "front-end-https",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-proto",
    "x-real-ip",
    "x-scheme",
    "x-script-name",
    "x-url-scheme",
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

/// The client's address of the port for Gradio, whose pages have absolute links. No other server reads it.
const FOR_GRADIO: HeaderName = HeaderName::from_static("x-gradio-server");

/// Where WebDAV's COPY and MOVE put it.
const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Whether the client asks for a WebSocket, the only protocol that a connection may be switched to.
pub(super) fn wants_websocket(head: &Parts) -> bool {
    let upgrade =
        head.headers.get(UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    upgrade && head.version == Version::HTTP_11
}

/// Whether a browser asks if a page of another origin may send a request. It brings no credentials.
pub(super) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD].iter().all(|name| head.headers.contains_key(name))
}

/// Turns a client's headers into those of the request to the server. The server sees a client on its own machine: host,
/// origin and referrer all say so, and nothing says otherwise but a header of Gradio's own. Of the way it hears the
/// client's address, and the prefix below which its pages are. Call it after the credentials were taken out.
pub(super) fn to_server(
    headers: &mut HeaderMap,
    place: &Place,
    outside: &Outside,
    peer: IpAddr,
    switch: bool,
) {
    let trailers = Trailers::of(headers);
    strip(headers);
    for name in FORWARDED_BY {
        headers.remove(name);
    }
    // The body's own framing gives the length; the header is written anew from it.
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    translate(headers, &ORIGIN, |origin| outside.is(origin).then(|| place.origin()));
    if headers.get(REFERER).is_some_and(|page| address::is_of_another(page.as_bytes(), place, outside)) {
        headers.remove(REFERER);
    }
    for name in [REFERER, DESTINATION] {
        translate(headers, &name, |page| address::inside(page, place, outside));
    }
    set(headers, HOST, &place.host());
    set(headers, HeaderName::from_static("x-forwarded-for"), &peer.to_canonical().to_string());
    if !place.prefix.is_empty() {
        set(headers, HeaderName::from_static("x-forwarded-prefix"), &place.prefix);
    }
    set(headers, FOR_GRADIO, &format!("{}{}", outside.origin().unwrap_or_default(), place.prefix));
    if switch {
        switching(headers);
    } else {
        set(headers, CONNECTION, "close");
        trailers.restore(headers);
    }
}

/// Says that a request has no body, in the way that strict servers want. `said`: whether the client gave a length.
pub(super) fn without_body(headers: &mut HeaderMap, method: &Method, said: bool) {
    if said || [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// Turns a server's headers into those of the response: addresses as the client sees them, cookies for this port only.
pub(super) fn to_client(headers: &mut HeaderMap, place: &Place, outside: &Outside) {
    let declared = Trailers::declared(headers);
    strip(headers);
    declared.restore(headers);
    headers.remove(FORWARDED);
    for name in [LOCATION, CONTENT_LOCATION] {
        translate(headers, &name, |to| address::outside(to, place, outside));
    }
    translate(headers, &REFRESH, |refresh| address::refresh(refresh, place, outside));
    translate(headers, &LINK, |links| address::links(links, place, outside));
    translate(headers, &ACCESS_CONTROL_ALLOW_ORIGIN, |origin| {
        address::is_server(origin, place).then(|| outside.origin()).flatten()
    });
    if !place.prefix.is_empty() {
        for name in OF_THE_ORIGIN {
            headers.remove(name);
        }
    }
    let cookies: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().filter_map(|cookie| confined(cookie, place, outside)).collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
}

/// What a message says of its trailers, which pass with the body.
struct Trailers {
    names: Vec<HeaderValue>,
    /// Whether the sender reads those of the answer.
    read: bool,
}

impl Trailers {
    fn of(headers: &HeaderMap) -> Self {
        let wanted = |value: &HeaderValue| {
            value.as_bytes().split(|byte| *byte == b',').any(|coding| coding.trim_ascii() == b"trailers")
        };
        Self { read: headers.get_all(TE).iter().any(wanted), ..Self::declared(headers) }
    }

    fn declared(headers: &HeaderMap) -> Self {
        Self { names: headers.get_all(TRAILER).iter().cloned().collect(), read: false }
    }

    fn restore(self, headers: &mut HeaderMap) {
        for names in self.names {
            headers.append(TRAILER, names);
        }
        if self.read {
            set(headers, TE, "trailers");
            set(headers, CONNECTION, "close, te");
        }
    }
}

/// Replaces each value that `change` knows another one for.
fn translate(headers: &mut HeaderMap, name: &HeaderName, change: impl Fn(&str) -> Option<String>) {
    let changed = |value: &HeaderValue| {
        let text = std::str::from_utf8(value.as_bytes()).ok()?;
        HeaderValue::try_from(change(text)?).ok()
    };
    if let http::header::Entry::Occupied(mut values) = headers.entry(name) {
        for value in values.iter_mut() {
            if let Some(new) = changed(value) {
                *value = new;
            }
        }
    }
}

/// Sets the headers that switch a connection to a WebSocket.
pub(super) fn switching(headers: &mut HeaderMap) {
    set(headers, CONNECTION, "upgrade");
    set(headers, UPGRADE, "websocket");
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

    fn gateway() -> Outside {
        Outside { host: "gw.example.com".into(), scheme: "https" }
    }

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn sent(headers: &[(&'static str, &str)], switch: bool) -> HeaderMap {
        let mut headers = map(headers);
        to_server(&mut headers, &by_path(), &gateway(), "::ffff:10.0.0.1".parse().unwrap(), switch);
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
                ("x-forwarded-host", "gw.example.com"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-ssl", "on"),
                ("x-scheme", "https"),
                ("connection", "keep-alive, x-private"),
                ("x-private", "1"),
                ("transfer-encoding", "chunked"),
                ("content-length", "5"),
                ("accept", "*/*"),
            ],
            false,
        );
        let expected = map(&[
            ("host", "localhost"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-prefix", "/v1/sandboxes/sb-1/ports/80/http"),
            ("x-gradio-server", "https://gw.example.com/v1/sandboxes/sb-1/ports/80/http"),
            ("connection", "close"),
            ("accept", "*/*"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn only_the_gateways_own_origin_becomes_the_servers() {
        for (origin, expected) in [
            ("https://gw.example.com", "http://localhost"),
            ("https://GW.example.com:443", "http://localhost"),
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
    fn what_a_server_says_of_its_origin_does_not_pass_by_path() {
        for (place, passes) in [(by_path(), false), (by_host(), true)] {
            let mut headers = map(&[("service-worker-allowed", "/"), ("etag", "1"), ("keep-alive", "x")]);
            to_client(&mut headers, &place, &gateway());
            assert_eq!(headers.contains_key("service-worker-allowed"), passes);
            assert_eq!((headers.contains_key("etag"), headers.contains_key("keep-alive")), (true, false));
        }
    }

    #[test]
    fn a_referrer_agrees_with_the_host() {
        let prefix = "/v1/sandboxes/sb-1/ports/80/http";
        for (page, expected) in [
            (format!("https://gw.example.com{prefix}/a?x=1&rollbox_token=t"), Some("http://localhost/a?x=1")),
            (format!("https://gw.example.com:443{prefix}"), Some("http://localhost/")),
            ("https://gw.example.com/".to_owned(), Some("http://localhost/")),
            ("https://gw.example.com/v1/sandboxes/sb-2/ports/80/http/".to_owned(), None),
            (format!("https://gw.example.com{prefix}s/"), None),
            ("https://example.com/a".to_owned(), Some("https://example.com/a")),
        ] {
            let headers = sent(&[("referer", &page)], false);
            assert_eq!(headers.get("referer").map(|page| page.to_str().unwrap()), expected, "{page}");
        }
    }

    #[test]
    fn a_copy_within_the_port_has_its_destination_there() {
        let prefix = "https://gw.example.com/v1/sandboxes/sb-1/ports/80/http";
        for (to, expected) in [
            (format!("{prefix}/a%20b"), "http://localhost/a%20b"),
            ("https://example.com/a".to_owned(), "https://example.com/a"),
        ] {
            assert_eq!(sent(&[("destination", &to)], false)["destination"], expected);
        }
    }

    #[test]
    fn the_servers_own_origin_is_allowed_as_the_client_knows_it() {
        for (allowed, expected) in [
            ("http://localhost", "https://gw.example.com"),
            ("http://127.0.0.1:80", "https://gw.example.com"),
            ("*", "*"),
            ("null", "null"),
            ("https://example.com", "https://example.com"),
        ] {
            let mut headers = map(&[("access-control-allow-origin", allowed)]);
            to_client(&mut headers, &by_path(), &gateway());
            assert_eq!(headers["access-control-allow-origin"], expected, "{allowed}");
        }
    }

    #[test]
    fn trailers_are_announced_both_ways() {
        let headers = sent(&[("te", "deflate;q=0.5, trailers"), ("trailer", "x-sum")], false);
        let names = [&headers["te"], &headers["trailer"], &headers["connection"]];
        assert_eq!(names, ["trailers", "x-sum", "close, te"]);
        assert!(!sent(&[("te", "deflate")], false).contains_key("te"));
        let mut answer = map(&[("trailer", "x-sum"), ("transfer-encoding", "chunked")]);
        to_client(&mut answer, &by_path(), &gateway());
        assert_eq!(answer, map(&[("trailer", "x-sum")]));
    }

    #[test]
    fn a_request_without_a_body_says_so_where_servers_want_it() {
        for (method, said, expected) in [
            (Method::POST, false, true),
            (Method::PUT, true, true),
            (Method::DELETE, true, true),
            (Method::DELETE, false, false),
            (Method::GET, false, false),
        ] {
            let mut headers = HeaderMap::new();
            without_body(&mut headers, &method, said);
            assert_eq!(
                headers.get("content-length").is_some_and(|length| length == "0"),
                expected,
                "{method}"
            );
        }
    }
}
