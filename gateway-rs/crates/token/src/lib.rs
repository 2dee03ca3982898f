//! Sandbox tokens: JWTs that the control plane signs with EdDSA and that gateway and sidecar verify offline.
//!
//! Pure: the clock is an argument, the key a string. Every refusal is a [`wire::Problem`] with code
//! `unauthenticated` (the token itself is invalid; the detail says why) or `permission_denied` (the token is valid but
//! is for another sandbox or lacks the scope).
//!
//! # Layout
//! - `jws`: the compact serialization, parsed strictly; the algorithm is fixed, never taken from the header.
//! - `claims`: the claims of a token, and whether they allow a call.
//! - `cache`: bounded cache of verified tokens, because a signature check costs about 100 us.
//! - `verifier`: the three put together; `pem`: reads its key from a file; `bearer`: the header that carries a token.
//! - `signer` (feature `signer`): mints tokens for tests.

mod bearer;
mod cache;
mod claims;
mod jws;
mod pem;
#[cfg(feature = "signer")]
mod signer;
mod verifier;

pub use bearer::bearer;
pub use claims::Claims;
#[cfg(feature = "signer")]
pub use signer::Signer;
pub use verifier::{InvalidKey, Verifier};
