use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};

use crate::Claims;
use crate::claims::ISSUER;
use crate::jws::ALGORITHM;

/// Mints tokens as the control plane does.
#[derive(Debug)]
pub struct Signer {
    key: SigningKey,
}

impl Signer {
    /// A signer with the private key `seed`.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(&seed) }
    }

    /// The public key as [`crate::Verifier::new`] takes it.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.verifying_key().as_bytes())
    }

    /// A token with exactly these claims.
    pub fn sign(&self, claims: &Claims) -> String {
        let mut payload = json!({
            "iss": ISSUER,
            "sub": &*claims.sandbox_id,
            "own": &*claims.owner,
            "scp": &*claims.scopes,
            "iat": 0,
            "exp": claims.expires_at_s,
        });
        if let Some(settings) = &claims.settings {
            payload["set"] = json!(&**settings);
        }
        self.sign_raw(&json!({"alg": ALGORITHM, "typ": "JWT"}), &payload)
    }

    /// A correctly signed token with any header and payload: for tests of tokens that are refused all the same.
    pub fn sign_raw(&self, header: &Value, payload: &Value) -> String {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(header), encode(payload));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }
}
