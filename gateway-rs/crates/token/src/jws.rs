//! The JWS compact serialization (RFC 7515 section 7.1), parsed strictly.
//!
//! Written here instead of taken from a JWT library, because such a library links every algorithm that a header may
//! name (RSA, P-256, P-384, HMAC) into the sidecar, whose binary is mounted into every sandbox; here there is one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::Signature;
use serde::Deserialize;
use wire::{Code, Problem};

/// The only algorithm (RFC 8037). A header that names another one is refused.
pub(crate) const ALGORITHM: &str = "EdDSA";

/// Longest token that is accepted; one of the control plane has about 300 bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 4096;

/// A parsed token whose signature is not verified yet.
pub(crate) struct Unverified<'a> {
    /// The signed bytes: header and payload as they arrived.
    pub(crate) signed: &'a [u8],
    pub(crate) signature: Signature,
    payload: &'a str,
}

/// Unknown header fields are refused: one of them may be `crit`, which must not be ignored (RFC 7515 4.1.11).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default, rename = "kid")]
    _kid: Option<String>,
}

impl<'a> Unverified<'a> {
    pub(crate) fn parse(token: &'a str) -> Result<Self, Problem> {
        let (signed, signature) = token.rsplit_once('.').ok_or_else(three_parts)?;
        let (header, payload) = signed.split_once('.').ok_or_else(three_parts)?;
        if payload.contains('.') {
            return Err(three_parts());
        }
        check_header(header)?;
        let signature = decode("signature", signature)?;
        let signature =
            Signature::from_slice(&signature).map_err(|_| malformed("its signature is not 64 bytes long"))?;
        Ok(Self { signed: signed.as_bytes(), signature, payload })
    }

    /// The payload; to be called only after the signature was verified.
    pub(crate) fn payload<T: serde::de::DeserializeOwned>(&self) -> Result<T, Problem> {
        let bytes = decode("payload", self.payload)?;
        serde_json::from_slice(&bytes).map_err(|e| malformed(&format!("its payload is wrong: {e}")))
    }
}

fn check_header(encoded: &str) -> Result<(), Problem> {
    let bytes = decode("header", encoded)?;
    let header: Header =
        serde_json::from_slice(&bytes).map_err(|e| malformed(&format!("its header is wrong: {e}")))?;
    if header.alg != ALGORITHM {
        return Err(malformed(&format!("its algorithm is not {ALGORITHM}")));
    }
    match header.typ.as_deref() {
        None | Some("JWT") => Ok(()),
        Some(_) => Err(malformed("its type is not JWT")),
    }
}

fn decode(part: &str, encoded: &str) -> Result<Vec<u8>, Problem> {
    URL_SAFE_NO_PAD.decode(encoded).map_err(|e| malformed(&format!("its {part} is not base64url: {e}")))
}

fn three_parts() -> Problem {
    malformed("it does not have three parts")
}

/// The token is never quoted: it may be a valid one with a typing error.
pub(crate) fn malformed(why: &str) -> Problem {
    Problem::new(Code::Unauthenticated, format!("the token is malformed: {why}"))
        .with("reason", "wrong_token")
}
