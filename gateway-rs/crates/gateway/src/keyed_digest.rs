//! Digests that say nothing without their key.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const LEAST_KEY_BYTES: usize = 32;

/// The key of the digests: all gateways of an installation have the same one, and nothing else has it. Without it a
/// digest says nothing about the settings, however few their likely values are.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// Does not show the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A key of at least 32 bytes; `None` for a shorter one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < LEAST_KEY_BYTES {
            return None;
        }
        Hmac::new_from_slice(bytes).ok().map(Self)
    }

    /// HMAC-SHA256 of a sequence of texts, in hex digits.
    pub(crate) fn digest<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> String {
        let mut mac = self.0.clone();
        for text in texts {
            // With its length before it, so that no two sequences are the same bytes.
            mac.update(&(text.len() as u64).to_be_bytes());
            mac.update(text.as_bytes());
        }
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_or_another_key_have_another_digest() {
        let key = Key::new(&[7; 32]).unwrap();
        let sequences: [&[&str]; 5] = [&[], &[""], &["ab"], &["a", "b"], &["b", "a"]];
        let digests = sequences.map(|texts| key.digest(texts.iter().copied()));
        for (number, digest) in digests.iter().enumerate() {
            assert_eq!(digest.len(), 64);
            assert!(!digests[..number].contains(digest), "{:?}", sequences[number]);
        }
        assert_ne!(Key::new(&[8; 32]).unwrap().digest(["ab"]), digests[2]);
    }

    #[test]
    fn it_is_the_hmac_of_the_standard() {
        // What `printf '\0\0\0\0\0\0\0\2hi' | openssl dgst -sha256 -hmac` says for this key.
        let key = Key::new(b"0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(key.digest(["hi"]), "90176fdaf0d4c1997d1b212946e45989a537d0c0e3deea78c32824dd040ef460");
    }

    #[test]
    fn a_key_is_long_and_is_not_shown() {
        assert!(Key::new(&[7; 31]).is_none());
        assert_eq!(format!("{:?}", Key::new(b"a secret key of more than 32 bytes").unwrap()), "Key(..)");
    }
}
