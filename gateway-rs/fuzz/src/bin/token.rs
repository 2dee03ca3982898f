//! Tokens: nothing but what the control plane signed is accepted, and of that what it says.
#![no_main]

use std::sync::LazyLock;

use serde_json::Value;
use token::{Claims, Signer, Verifier, bearer};

const NOW_S: u64 = 1000;
const EXPIRES_S: u64 = 2000;

static SIGNER: LazyLock<Signer> = LazyLock::new(|| Signer::from_seed([7; 32]));
static VERIFIER: LazyLock<Verifier> =
    LazyLock::new(|| Verifier::new(&SIGNER.public_key()).expect("its own key"));
/// The one token that is out.
static SIGNED: LazyLock<String> = LazyLock::new(|| SIGNER.sign(&claims()));

fn claims() -> Claims {
    let scopes = vec!["exec".to_owned()].into();
    Claims { sandbox_id: "sb-1".into(), owner: "a".into(), scopes, expires_at_s: EXPIRES_S, settings: None }
}

fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match (kind % 3, std::str::from_utf8(bytes)) {
        (0, _) => header(bytes),
        (1, Ok(text)) => signed(text),
        (2, Ok(text)) => drop(Verifier::from_pem(text)),
        _ => {}
    }
}

/// Any header: no second text is the token that is out.
fn header(bytes: &[u8]) {
    let Ok(token) = bearer(Some(bytes)) else { return };
    if let Ok(found) = VERIFIER.verify(token, NOW_S) {
        assert_eq!((token, found), (SIGNED.as_str(), claims()));
    }
}

/// Two JSON values, signed as a header and a payload.
fn signed(text: &str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (Some(Ok(header)), Some(Ok(payload))) = (values.next(), values.next()) else { return };
    let token = SIGNER.sign_raw(&header, &payload);
    let Ok(found) = VERIFIER.verify(&token, NOW_S) else { return };
    assert_eq!((&header["alg"], &payload["iss"]), (&"EdDSA".into(), &"rollbox".into()));
    assert_eq!((&payload["sub"], &payload["own"]), (&(*found.sandbox_id).into(), &(*found.owner).into()));
    assert!(payload["exp"] == found.expires_at_s && found.expires_at_s > NOW_S, "{payload}");
    assert!(
        header
            .as_object()
            .is_some_and(|fields| fields.keys().all(|name| ["alg", "typ", "kid"].contains(&name.as_str())))
    );
}

fn seeds() -> Vec<Vec<u8>> {
    let payload =
        r#"{"iss": "rollbox", "sub": "sb-1", "own": "a", "scp": ["exec"], "exp": 2000, "set": "d"}"#;
    let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq66u8T4YPm4qKJm8pM=\n-----END PUBLIC KEY-----\n";
    vec![
        format!("\0Bearer {}", *SIGNED).into_bytes(),
        format!("\x01{{\"alg\": \"EdDSA\", \"typ\": \"JWT\", \"kid\": \"k\"}}{payload}").into_bytes(),
        format!("\x02{pem}").into_bytes(),
    ]
}

fuzz::target!(seeds().iter().map(Vec::as_slice).collect::<Vec<_>>(), check);
