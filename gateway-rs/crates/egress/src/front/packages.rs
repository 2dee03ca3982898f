use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use wire::egress::Verdict;

use crate::policy::{PACKAGES, Refusal, Target};

/// What the package cache is told. Nobody else may say it.
const INDEX: HeaderName = HeaderName::from_static("x-rollbox-index");
const UNTIL: HeaderName = HeaderName::from_static("x-rollbox-until");
/// What it tells: how it has come by its answer, in nginx's words; nothing where it has asked no index.
const CACHE: HeaderName = HeaderName::from_static("x-rollbox-cache");

/// Tells the cache which index the policy allows, and as of when; what is one program's own is not for a shared cache.
pub(super) fn to_cache(headers: &mut HeaderMap, index: &Target, until: &str) {
    for name in [AUTHORIZATION, COOKIE, INDEX, UNTIL] {
        headers.remove(name);
    }
    headers.insert(HOST, HeaderValue::from_static(PACKAGES));
    if let Ok(index) = HeaderValue::from_str(&index.host.to_string()) {
        headers.insert(INDEX, index);
    }
    if let Some(until) = HeaderValue::from_str(until).ok().filter(|until| !until.is_empty()) {
        headers.insert(UNTIL, until);
    }
}

/// What came of a request, as it is counted; `None`: egress has refused it itself.
pub(super) fn result<B>(answered: &Result<Response<B>, Refusal>) -> Option<&'static str> {
    match answered {
        Ok(answer) => Some(result_of(answer.status(), answer.headers().get(CACHE))),
        Err(refusal) if refusal.verdict == Verdict::PackagesSilent => Some("silent"),
        Err(refusal) if refusal.verdict == Verdict::Unreachable => Some("error"),
        Err(_) => None,
    }
}

fn result_of(status: StatusCode, told: Option<&HeaderValue>) -> &'static str {
    match told.map(HeaderValue::as_bytes) {
        _ if status.is_server_error() => "error",
        None if status.is_client_error() => "refused",
        // None: a page that it makes of nothing but its own address.
        None | Some(b"HIT" | b"REVALIDATED" | b"UPDATING") => "hit",
        Some(b"STALE") => "stale",
        Some(_) => "miss",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_a_request_follows_from_the_status_and_the_caches_word() {
        for (status, told, expected) in [
            (200, "HIT", "hit"),
            (404, "HIT", "hit"),
            (200, "UPDATING", "hit"),
            (200, "", "hit"),
            (200, "STALE", "stale"),
            (200, "MISS", "miss"),
            (304, "EXPIRED", "miss"),
            (403, "", "refused"),
            (404, "", "refused"),
            (502, "MISS", "error"),
            (503, "", "error"),
        ] {
            let told = (!told.is_empty()).then(|| HeaderValue::from_static(told));
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(result_of(status, told.as_ref()), expected, "{status} {told:?}");
        }
    }
}
