//! Sandbox tokens: JWTs that the control plane signs with EdDSA and that gateway and sidecar verify offline.
//!
//! Pure: the clock is an argument, the key a string. Every refusal is a [`wire::Problem`] with code
//! `unauthenticated` (the token itself is no good; the detail says why) or `permission_denied` (the token is good
//! but is for another sandbox or lacks the scope).
//!
//! # Layout
//! - `jws`: the compact serialization, parsed strictly; the algorithm is ours, never the header's.
//! - `claims`: what a token says, and whether that allows a call.
//! - `cache`: bounded memory of verified tokens, because a signature check costs about 100 us.
//! - `verifier`: the three put together; `pem`: its key out of a file; `bearer`: the header that carries a token.
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
