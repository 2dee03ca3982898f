//! Authorization: a sandbox may be used by the bearer of its token.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use resolve::Route;
use token::{Claims, Verifier};
use wire::{Code, Problem};

use crate::http::fields;

/// The scope that every exec endpoint requires.
const SCOPE: &str = "exec";

/// A token that was verified for one sandbox.
#[derive(Debug)]
pub(crate) struct Bearer {
    pub(crate) claims: Claims,
    /// The Authorization header for the sidecar, which verifies the token again.
    pub(crate) header: HeaderValue,
}

/// Checks the Authorization header for the exec endpoints of `sandbox_id`.
///
/// # Errors
/// `unauthenticated` or `permission_denied`; the detail says why.
pub(crate) fn check(verifier: &Verifier, headers: &HeaderMap, sandbox_id: &str) -> Result<Bearer, Problem> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let header = given.next();
    if given.next().is_some() {
        // Of several headers, each reader of the request could pick a different one.
        return Err(Problem::new(Code::Unauthenticated, "the Authorization header is given more than once"));
    }
    check_token(verifier, token::bearer(header.map(HeaderValue::as_bytes))?, sandbox_id)
}

/// The same for the sandbox that a request's path names.
///
/// # Errors
/// As [`check`], and `invalid_argument` for a path that cannot be read.
pub(crate) fn check_path(
    verifier: &Verifier,
    headers: &HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Bearer, Problem> {
    let Path(id) = id.map_err(fields::unreadable_path)?;
    check(verifier, headers, &id)
}

/// The same for a token that was sent in another way (own header, query parameter, cookie).
///
/// # Errors
/// As [`check`].
pub(crate) fn check_token(verifier: &Verifier, token: &str, sandbox_id: &str) -> Result<Bearer, Problem> {
    let claims = verifier.verify(token, now_unix_s())?;
    claims.allow(sandbox_id, SCOPE)?;
    Ok(Bearer { claims, header: bearer(token) })
}

/// Whether a token was issued by this installation, for any sandbox.
pub(crate) fn is_ours(verifier: &Verifier, token: &str) -> bool {
    verifier.verify(token, now_unix_s()).is_ok()
}

/// Credentials for one public port of a sandbox, for a request without a valid token.
pub(crate) fn for_public_port(route: &Route, port_token: &str) -> Bearer {
    let claims = Claims {
        sandbox_id: Arc::clone(&route.sandbox_id),
        owner: Arc::clone(&route.owner),
        scopes: Arc::new([]),
        expires_at_s: u64::MAX,
        settings: None,
    };
    Bearer { claims, header: bearer(port_token) }
}

/// The Authorization header with a token.
pub(crate) fn bearer(token: &str) -> HeaderValue {
    // A token consists of visible characters only.
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).unwrap_or(HeaderValue::from_static(""));
    // Marked sensitive, so that its `Debug` output does not show the token in a log.
    header.set_sensitive(true);
    header
}

/// Reads a clock before 1970 as 1970: tokens then count as valid until the clock is set, and the sidecar checks them
/// again.
fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
