use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

/// For clients whose Authorization header is for the server in the sandbox.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-rollbox-token");

/// Name of the cookie, and of the query parameter that becomes one: for browsers, which send nothing else by
/// themselves.
pub(super) const TOKEN_NAME: &str = "rollbox_token";

/// Prefix of API keys: one that was sent here by mistake must not reach a server in a sandbox either.
const API_KEY: &str = "rbx_";

/// Where a token may be; tried in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Header,
    Query,
    Authorization,
    Cookie,
}

/// What [`take`] found in a request.
#[derive(Debug)]
pub(super) struct Presented {
    pub(super) tokens: Vec<(Source, String)>,
    /// The query without the token.
    pub(super) query: Option<String>,
}

/// Takes everything out of a request that may be one of rollbox's tokens. An Authorization header stays if `is_ours`
/// is false for its token: then it is meant for the server.
pub(super) fn take(head: &mut Parts, is_ours: impl Fn(&str) -> bool) -> Presented {
    let mut tokens = Vec::new();
    tokens.extend(texts(&head.headers, &TOKEN_HEADER).into_iter().map(|token| (Source::Header, token)));
    head.headers.remove(TOKEN_HEADER);
    let query = head.uri.query().map(|query| {
        let left = without(query.as_bytes(), b"&", Source::Query, &mut tokens);
        String::from_utf8_lossy(&left).into_owned()
    });
    let bearers = bearers(&head.headers);
    if bearers.iter().any(|token| token.starts_with(API_KEY) || is_ours(token)) {
        head.headers.remove(AUTHORIZATION);
    }
    tokens.extend(bearers.into_iter().map(|token| (Source::Authorization, token)));
    take_cookies(&mut head.headers, &mut tokens);
    // One of each kind: each costs a signature check, and the caller is not authenticated yet.
    tokens.dedup_by_key(|(source, _)| *source);
    Presented { tokens, query: query.filter(|query| !query.is_empty()) }
}

fn bearers(headers: &HeaderMap) -> Vec<String> {
    let bearer = |text: String| {
        let (scheme, token) = text.split_once([' ', '\t'])?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    };
    texts(headers, &AUTHORIZATION).into_iter().filter_map(bearer).collect()
}

fn take_cookies(headers: &mut HeaderMap, tokens: &mut Vec<(Source, String)>) {
    let left: Vec<HeaderValue> = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| {
            let left = without(value.as_bytes(), b"; ", Source::Cookie, tokens);
            HeaderValue::from_bytes(&left).ok().filter(|value| !value.is_empty())
        })
        .collect();
    headers.remove(COOKIE);
    for value in left {
        headers.append(COOKIE, value);
    }
}

/// Returns a list of `NAME=VALUE` without rollbox's own, whose values are added to `tokens`. Bytes, since a server's own
/// cookies beside the token may be no ASCII.
fn without(list: &[u8], separator: &[u8], source: Source, tokens: &mut Vec<(Source, String)>) -> Vec<u8> {
    let mut left = Vec::new();
    for part in list.split(|byte| Some(byte) == separator.first()).map(<[u8]>::trim_ascii) {
        match part.strip_prefix(TOKEN_NAME.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
            Some(token) => tokens.push((source, String::from_utf8_lossy(token).into_owned())),
            None => left.push(part),
        }
    }
    left.join(separator)
}

/// Also of what is no ASCII: a key in it must not reach the server either.
fn texts(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn taken(uri: &str, headers: &[(&str, &str)]) -> (Presented, HeaderMap) {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, value.as_bytes());
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let given = take(&mut head, |token| token == "ours");
        (given, head.headers)
    }

    #[test]
    fn tokens_are_found_in_order_and_none_is_left() {
        let (given, headers) = taken(
            "/a?x=1&rollbox_token=query&y=2",
            &[
                ("cookie", "a=b; rollbox_token=cookie; c=d"),
                ("authorization", "Bearer ours"),
                ("x-rollbox-token", "header"),
            ],
        );
        let expected = [
            (Source::Header, "header"),
            (Source::Query, "query"),
            (Source::Authorization, "ours"),
            (Source::Cookie, "cookie"),
        ];
        assert_eq!(given.tokens, expected.map(|(source, token)| (source, token.to_owned())));
        assert_eq!(given.query.as_deref(), Some("x=1&y=2"));
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["cookie"], "a=b; c=d");
    }

    #[test]
    fn the_token_is_found_beside_a_cookie_that_is_no_ascii() {
        let (given, headers) = taken("/", &[("cookie", "rollbox_token=t; name=\u{e9}")]);
        assert_eq!(given.tokens, [(Source::Cookie, "t".to_owned())]);
        assert_eq!(headers["cookie"].as_bytes(), "name=\u{e9}".as_bytes());
    }

    #[test]
    fn the_callers_own_authorization_stays() {
        for own in ["Bearer theirs", "Basic YTpi"] {
            assert_eq!(taken("/", &[("authorization", own)]).1["authorization"], own);
        }
        for ours in ["Bearer ours", "bearer  ours", "Bearer\tours", "Bearer rbx_alice", "Bearer rbx_\u{e9}"] {
            assert!(taken("/", &[("authorization", ours)]).1.is_empty(), "{ours}");
        }
    }

    #[test]
    fn what_only_looks_alike_is_the_servers() {
        let (given, headers) = taken("/?rollbox_tokens=1&a", &[("cookie", "my_rollbox_token=1")]);
        assert!(given.tokens.is_empty());
        assert_eq!(
            (given.query.as_deref(), &headers["cookie"]),
            (Some("rollbox_tokens=1&a"), &"my_rollbox_token=1".parse().unwrap())
        );
        assert_eq!(taken("/?rollbox_token=t", &[("cookie", "rollbox_token=t")]).0.query, None);
    }
}
