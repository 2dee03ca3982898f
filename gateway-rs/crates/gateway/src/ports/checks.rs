//! What holds for any request to a port, and for any answer of a server.

use std::net::Ipv4Addr;

use http::header::{AUTHORIZATION, COOKIE, HOST, LOCATION, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::address::{self, Outside};
use super::credential::{self, TOKEN_NAME};
use super::headers;
use super::place::Place;

const DOMAIN: &str = "p.test";
/// The one token that is valid.
const OURS: &str = "ours";
/// As many as the library takes.
const MOST_HEADERS: usize = 100;
/// What concerns the connection before this one, or what only the gateway may say.
const GONE: [&str; 9] = [
    "x-rollbox-token",
    "transfer-encoding",
    "content-length",
    "expect",
    "forwarded",
    "x-real-ip",
    "x-forwarded-host",
    "x-forwarded-proto",
    "keep-alive",
];

/// Any request (lines: its target, then headers) is refused, or no token of it reaches the server, which sees itself as
/// the host and one word of where the request came from.
pub fn check_request(bytes: &[u8]) {
    let Some(mut head) = head(bytes) else { return };
    let outside = Outside::of(&head);
    let named = Place::of_host(&outside.host, head.uri.path(), DOMAIN);
    let place = named.ok().flatten().ok_or(()).or_else(|()| Place::of_path(head.uri.path()));
    let Ok(place) = place else { return };
    let presented = credential::take(&mut head, |token| token == OURS);
    let switch = headers::wants_websocket(&head);
    let Ok(target) = place.target(presented.query.as_deref()) else { return };
    headers::to_server(&mut head.headers, &place, &outside, Ipv4Addr::LOCALHOST.into(), switch);
    assert!(
        target.authority().is_none() && target.query().is_none_or(|query| !query.split('&').any(is_token))
    );
    let texts = |name: HeaderName| {
        head.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()))
    };
    assert!(texts(COOKIE).all(|cookies| !cookies.split(';').any(is_token)), "{head:?}");
    assert!(texts(AUTHORIZATION).all(|value| !is_secret(&value)), "{head:?}");
    assert!(texts(HOST).eq([place.host()]), "{head:?}");
    assert!(GONE.iter().all(|name| !head.headers.contains_key(*name)), "{head:?}");
    for name in ["connection", "x-forwarded-for"] {
        assert_eq!(head.headers.get_all(name).iter().count(), 1, "{name} of {head:?}");
    }
}

/// Any answer (lines: its headers) sets cookies for its port alone and none with the token's name, and leads to no path
/// of another port.
pub fn check_answer(bytes: &[u8]) {
    let sent: HeaderMap = bytes.split(|byte| *byte == b'\n').filter_map(header).take(MOST_HEADERS).collect();
    for prefix in ["", "/v1/sandboxes/sb-1/ports/80/http"] {
        let place = Place {
            sandbox_id: "sb-1".to_owned(),
            port: 80,
            prefix: prefix.to_owned(),
            path: "/a".to_owned(),
            ip: None,
        };
        let mut headers = sent.clone();
        let outside = Outside { host: "gw.test".to_owned(), scheme: "http" };
        headers::to_client(&mut headers, &place, &outside);
        for cookie in headers.get_all(SET_COOKIE) {
            check_cookie(&String::from_utf8_lossy(cookie.as_bytes()), prefix);
        }
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        // Browsers leave tabs out (WHATWG URL): behind one a second slash makes a host too.
        let location = location.replace('\t', "");
        let local = location.starts_with('/') && !location.starts_with("//") && !location.starts_with("/\\");
        assert!(!local || address::below(&location, prefix).is_some(), "{location}");
    }
}

/// As a browser reads it (RFC 6265 section 5.2).
fn check_cookie(cookie: &str, prefix: &str) {
    let mut parts = cookie.split(';').map(|part| part.trim_matches([' ', '\t']));
    let pair = parts.next().unwrap_or_default();
    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
    let [name, value] = [name, value].map(|text| text.trim_matches([' ', '\t']));
    assert_ne!(name, TOKEN_NAME, "{cookie}");
    assert!(!name.is_empty() || !is_token(value), "{cookie}");
    let attributes: Vec<_> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    let is = |name: &'static str| move |(found, _): &&(&str, &str)| found.trim().eq_ignore_ascii_case(name);
    assert!(!attributes.iter().any(|found| is("domain")(&found)), "{cookie}");
    let path = attributes.iter().rfind(is("path")).map(|(_, path)| path.trim());
    assert!(path.is_some_and(|path| address::below(path, prefix).is_some()), "{cookie}");
}

fn is_token(pair: &str) -> bool {
    pair.trim_ascii().strip_prefix(TOKEN_NAME).is_some_and(|rest| rest.starts_with('='))
}

fn is_secret(authorization: &str) -> bool {
    let (scheme, token) = authorization.split_once(char::is_whitespace).unwrap_or_default();
    scheme.eq_ignore_ascii_case("bearer") && (token.trim() == OURS || token.trim().starts_with("rbx_"))
}

fn head(bytes: &[u8]) -> Option<Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (mut head, ()) = Request::new(()).into_parts();
    head.uri = Uri::try_from(lines.next()?).ok()?;
    head.headers = lines.filter_map(header).take(MOST_HEADERS).collect();
    Some(head)
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATH: &str = "/v1/sandboxes/sb-1/ports/80/http/a";

    proptest! {
        #[test]
        fn no_request_breaks_it(
            query in "((rollbox_token|a)=b?[&;]?){0,4}",
            headers in "((cookie|host|authorization|x-rollbox-token|connection|upgrade): ?((rollbox_token|a)=b; |Bearer[ \t]+(ours|rbx_1|x)|80-sb-1.p.test|websocket|te, cookie){0,3}\n){0,4}",
        ) {
            check_request(format!("{PATH}?{query}\n{headers}").as_bytes());
        }

        #[test]
        fn no_answer_breaks_it(
            headers in "((set-cookie|location): ?([=; \t]|rollbox_token|a|(?i:path|domain)|/|//|\u{a0}|http://localhost:80|\\.\\.|\\\\|/v1/sandboxes/sb-1/ports/80/http){0,8}\n){0,4}",
        ) {
            check_answer(headers.as_bytes());
        }
    }
}
