//! Who may use a sandbox: the bearer of its token.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use token::{Claims, Verifier};
use wire::{Code, Problem};

/// The scope that every exec endpoint asks for.
const SCOPE: &str = "exec";

/// A token that was found good for one sandbox.
#[derive(Debug)]
pub(crate) struct Bearer {
    pub(crate) claims: Claims,
    /// The header as it came: the sidecar verifies it again.
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
        // Which one counts is for each reader to say; the next one may say otherwise.
        return Err(Problem::new(Code::Unauthenticated, "the Authorization header is given more than once"));
    }
    let token = token::bearer(header.map(HeaderValue::as_bytes))?;
    let claims = verifier.verify(token, now_unix_s())?;
    claims.allow(sandbox_id, SCOPE)?;
    // `bearer` has refused an absent header.
    let mut header = header.cloned().unwrap_or_else(|| HeaderValue::from_static(""));
    // So that no `Debug` of it, in whatever log, shows the token.
    header.set_sensitive(true);
    Ok(Bearer { claims, header })
}

/// A clock before 1970 reads as 1970: tokens then count as valid until it is set, and the sidecar checks them again.
fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
