//! Reads the public key from the text of a PEM file. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How every Ed25519 public key begins in DER, alone or within a certificate (RFC 8410 section 4); the 32 bytes of
/// the key follow.
const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const LABELS: [&str; 2] = ["PUBLIC KEY", "CERTIFICATE"];

/// Returns the key of the one block in `pem`; `None` unless it is the only one there.
///
/// A certificate is not verified: a process that can write the file can name any key.
pub(crate) fn key(pem: &str) -> Option<[u8; 32]> {
    let mut blocks = LABELS.iter().flat_map(|label| blocks(pem, label));
    let der = blocks.next()??;
    let mut places = (0..der.len()).filter(|at| der[*at..].starts_with(&PREFIX));
    let (at, others) = (places.next()?, places.next().is_some() || blocks.next().is_some());
    let key = der.get(at + PREFIX.len()..)?.get(..32)?;
    if others { None } else { key.try_into().ok() }
}

/// The content of each block with a label; `None` for one that is not base64 or has no end.
fn blocks<'a>(pem: &'a str, label: &str) -> impl Iterator<Item = Option<Vec<u8>>> + use<'a> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let mut rest = pem;
    std::iter::from_fn(move || {
        let (_, from) = rest.split_once(&begin)?;
        rest = "";
        let Some((text, after)) = from.split_once(&end) else { return Some(None) };
        rest = after;
        let text: String = text.split_ascii_whitespace().collect();
        Some(STANDARD.decode(text).ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq66u8T4YPm4qKJm8pM=\n-----END PUBLIC KEY-----\n";

    const DAMAGED: &str = "-----BEGIN PUBLIC KEY-----\nMCow?\n-----END PUBLIC KEY-----\n";

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }

    fn certificate(keys: &[[u8; 32]]) -> Vec<u8> {
        let keys = keys.iter().flat_map(|key| [&PREFIX[..], key].concat());
        [7; 90].into_iter().chain(keys).chain([9; 64]).collect()
    }

    #[test]
    fn a_public_key_and_the_one_of_a_certificate_are_found() {
        assert_eq!(key(PUBLIC_KEY).map(|key| key[0]), Some(0xea));
        assert_eq!(key(&pem("CERTIFICATE", &certificate(&[[3; 32]]))), Some([3; 32]));
        let with_words = format!("subject=CN = x\n{}trailing", pem("CERTIFICATE", &certificate(&[[3; 32]])));
        assert_eq!(key(&with_words), Some([3; 32]));
    }

    #[test]
    fn what_is_not_exactly_one_key_is_none() {
        for text in [
            String::new(),
            "-----BEGIN PUBLIC KEY-----\n".to_owned(),
            pem("PRIVATE KEY", &certificate(&[[3; 32]])),
            pem("PUBLIC KEY", &PREFIX),
            pem("CERTIFICATE", &certificate(&[])),
            pem("CERTIFICATE", &certificate(&[[3; 32], [4; 32]])),
            [PUBLIC_KEY, PUBLIC_KEY].concat(),
            [PUBLIC_KEY, DAMAGED].concat(),
            [DAMAGED, PUBLIC_KEY].concat(),
            [PUBLIC_KEY, DAMAGED, PUBLIC_KEY].concat(),
            [DAMAGED, &pem("CERTIFICATE", &certificate(&[[3; 32]]))].concat(),
            [PUBLIC_KEY, "-----BEGIN PUBLIC KEY-----\n"].concat(),
            [PUBLIC_KEY, &pem("CERTIFICATE", &certificate(&[[3; 32]]))].concat(),
        ] {
            assert_eq!(key(&text), None, "{text}");
        }
    }
}
