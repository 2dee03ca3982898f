use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use wire::{Code, Problem};

use crate::cache::{Cache, fingerprint};
use crate::claims::{Claims, ISSUER, Payload};
use crate::jws::{MAX_TOKEN_BYTES, Unverified, malformed};
use crate::pem;

/// Half of the tokens that are cached; about 300 bytes each. 4096 running sandboxes per gateway are an estimate of
/// twice what one machine serves; where there are more, some calls pay for the signature check again.
const GENERATION_SIZE: usize = 4096;

/// Verifies tokens with one public key and caches the valid ones.
#[derive(Debug)]
pub struct Verifier {
    key: VerifyingKey,
    cache: Mutex<Cache>,
}

/// The text is not a public key; the message states the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidKey;

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an Ed25519 public key is 32 bytes in base64url without padding (43 characters), or the only `PUBLIC KEY` \
             or `CERTIFICATE` of a PEM file",
        )
    }
}

impl std::error::Error for InvalidKey {}

impl Verifier {
    /// A verifier for one raw Ed25519 public key, in base64url without padding.
    ///
    /// # Errors
    /// [`InvalidKey`] when the text is something else, or a weak key, which accepts forged signatures.
    pub fn new(public_key_b64url: &str) -> Result<Self, InvalidKey> {
        let bytes = URL_SAFE_NO_PAD.decode(public_key_b64url).map_err(|_| InvalidKey)?;
        Self::from_bytes(bytes.try_into().map_err(|_| InvalidKey)?)
    }

    /// A verifier for the one Ed25519 key in a PEM file's text: a `PUBLIC KEY`, or a `CERTIFICATE` with such a key.
    ///
    /// # Errors
    /// [`InvalidKey`] when there is none or more than one, or for a weak key.
    pub fn from_pem(pem: &str) -> Result<Self, InvalidKey> {
        Self::from_bytes(pem::key(pem).ok_or(InvalidKey)?)
    }

    fn from_bytes(bytes: [u8; 32]) -> Result<Self, InvalidKey> {
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| InvalidKey)?;
        if key.is_weak() {
            return Err(InvalidKey);
        }
        Ok(Self { key, cache: Mutex::new(Cache::new(GENERATION_SIZE)) })
    }

    /// Verifies one token at the Unix time `now_unix_s` (seconds).
    ///
    /// # Errors
    /// `unauthenticated`: malformed, not signed by this key, from another issuer, or expired; the detail says which.
    ///
    /// Cost: about 1 us for a token in the cache, about 100 us for another one.
    pub fn verify(&self, token: &str, now_unix_s: u64) -> Result<Claims, Problem> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(malformed(&format!("it is longer than {MAX_TOKEN_BYTES} bytes")));
        }
        let key = fingerprint(token);
        // The guard must be dropped before the match: otherwise the signature check below would run under the lock.
        let known = self.cache().get(&key);
        if let Some(claims) = known {
            return match claims.check_expiry(now_unix_s) {
                Ok(()) => Ok(claims),
                Err(expired) => {
                    self.cache().remove(&key);
                    Err(expired)
                }
            };
        }
        let claims = self.verify_signature(token)?;
        claims.check_expiry(now_unix_s)?;
        self.cache().insert(key, claims.clone());
        Ok(claims)
    }

    fn verify_signature(&self, token: &str) -> Result<Claims, Problem> {
        let token = Unverified::parse(token)?;
        // Strict: also refuses the malleable signatures that RFC 8032 leaves to the implementation.
        self.key
            .verify_strict(token.signed, &token.signature)
            .map_err(|_| refused("the signature of the token is wrong"))?;
        let payload: Payload = token.payload()?;
        if payload.iss != ISSUER {
            return Err(refused(&format!("the token was issued by {:?}, not by {ISSUER}", payload.iss)));
        }
        Ok(payload.into_claims())
    }

    /// A panic while the lock was held cannot leave a wrong entry behind, so a poisoned lock is safe to use.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail)
}
