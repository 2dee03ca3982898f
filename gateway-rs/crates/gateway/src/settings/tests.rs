use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::*;

fn complete() -> HashMap<String, String> {
    let key = token::Signer::from_seed([1; 32]).public_key();
    [
        ("ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY", key.as_str()),
        ("ROLLBOX_GATEWAY_SETTINGS_KEY_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
        ("ROLLBOX_GATEWAY_ROUTES_URL", "unix:/run/routes.sock"),
        ("ROLLBOX_GATEWAY_CONTROLPLANE_URL", "http://127.0.0.1:7421"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Settings with which nothing outside is reached.
pub(crate) fn settings() -> Settings {
    read(&complete()).unwrap()
}

fn read(variables: &HashMap<String, String>) -> Result<Settings, InvalidSetting> {
    Settings::read(|name| variables.get(name).cloned())
}

#[test]
fn what_is_not_set_has_its_default() {
    let settings = read(&complete()).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7420");
    assert_eq!((settings.max_inflight, settings.max_inflight_per_sandbox), (4096, 64));
    assert_eq!((settings.queue_timeout, settings.drain), (Duration::from_secs(30), Duration::from_secs(30)));
    assert_eq!((settings.max_body_bytes, settings.dns), (33_554_432, None));
}

#[test]
fn a_small_global_limit_lowers_the_default_of_the_smaller_one() {
    let mut variables = complete();
    variables.insert("ROLLBOX_GATEWAY_MAX_INFLIGHT".to_owned(), "8".to_owned());
    assert_eq!(read(&variables).unwrap().max_inflight_per_sandbox, 8);
}

#[test]
fn each_required_variable_is_named_when_missing_or_empty() {
    for name in complete().into_keys() {
        let mut variables = complete();
        variables.remove(&name);
        let missing = read(&variables).unwrap_err();
        assert_eq!((missing.variable, missing.value.as_str()), (name.as_str(), "not set"));
        variables.insert(name, String::new());
        assert_eq!(read(&variables).unwrap_err(), missing);
    }
}

#[test]
fn each_bad_value_is_named_with_variable_value_and_rule() {
    let cases = [
        ("ROLLBOX_GATEWAY_LISTEN", "localhost", "must be IP:PORT"),
        ("ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY", "short", "must be a key"),
        ("ROLLBOX_GATEWAY_SETTINGS_KEY_FILE", "/no/such/file", "must be a file that can be read"),
        ("ROLLBOX_GATEWAY_SETTINGS_KEY_FILE", "/dev/null", "must be a file of at least 32 bytes"),
        ("ROLLBOX_GATEWAY_ROUTES_URL", "unix:relative", "must be `unix:/PATH`"),
        ("ROLLBOX_GATEWAY_CONTROLPLANE_URL", "https://x:1", "must be `unix:/PATH`"),
        ("ROLLBOX_GATEWAY_MAX_INFLIGHT", "0", "must be an integer of 1 to"),
        ("ROLLBOX_GATEWAY_MAX_INFLIGHT_PER_SANDBOX", "5000", "must be an integer of 1 to 4096"),
        ("ROLLBOX_GATEWAY_QUEUE_TIMEOUT_MS", "30s", "must be an integer"),
        ("ROLLBOX_GATEWAY_MAX_BODY_BYTES", "-1", "must be an integer"),
        ("ROLLBOX_GATEWAY_DRAIN_MS", "99999999999", "must be an integer"),
        ("ROLLBOX_GATEWAY_DNS_ZONE", "a..b", "must be a DNS name"),
        ("ROLLBOX_GATEWAY_DNS_SHARDS", "16", "means nothing without ROLLBOX_GATEWAY_DNS_ZONE"),
        ("ROLLBOX_GATEWAY_DNS_SERVER", "10.0.0.1:53", "means nothing without ROLLBOX_GATEWAY_DNS_ZONE"),
        ("ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY_FILE", "/no/such", "must not be set together with"),
        ("ROLLBOX_GATEWAY_LOG", "gateway=loud", "must be LEVEL"),
    ];
    for (name, value, rule) in cases {
        let mut variables = complete();
        variables.insert(name.to_owned(), value.to_owned());
        let message = read(&variables).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("{name} is \"{value}\"")) && message.contains(rule),
            "{message}"
        );
    }
}

#[test]
fn the_fallback_has_a_zone_shards_and_maybe_a_server() {
    let mut variables = complete();
    let mut set = |name: &str, value: &str| {
        variables.insert(format!("ROLLBOX_GATEWAY_{name}"), value.to_owned());
        read(&variables).map(|settings| settings.dns.unwrap())
    };
    let dns = set("DNS_ZONE", "a.b").unwrap();
    assert_eq!((dns.zone.as_str(), dns.shards.get(), dns.server), ("a.b", 16, None));
    assert_eq!(set("DNS_SHARDS", "7").unwrap().shards.get(), 7);
    assert_eq!(set("DNS_SERVER", "10.0.0.9:5353").unwrap().server.unwrap().port(), 5353);
    assert_eq!(set("DNS_SERVER", "dns:53").unwrap_err().variable, "ROLLBOX_GATEWAY_DNS_SERVER");
}

#[test]
fn the_key_may_come_from_a_file() {
    let path = std::env::temp_dir().join(format!("rollbox-gw-key-{}", std::process::id()));
    // Left by an earlier process with the same process id.
    drop(std::fs::remove_file(&path));
    let file = "ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY_FILE";
    let mut variables = complete();
    variables.remove("ROLLBOX_GATEWAY_TOKEN_PUBLIC_KEY");
    variables.insert(file.to_owned(), path.display().to_string());
    assert!(read(&variables).unwrap_err().rule.contains("can be read"));
    std::fs::write(&path, "no key").unwrap();
    assert!(read(&variables).unwrap_err().rule.contains("must hold a key"));
    let key = URL_SAFE_NO_PAD.decode(token::Signer::from_seed([1; 32]).public_key()).unwrap();
    let der = [b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", &key[..]].concat();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
    std::fs::write(&path, pem).unwrap();
    assert!(read(&variables).is_ok());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_port_with_tls_needs_its_certificate_and_key() {
    let refused = |set: &[(&str, &str)]| {
        let mut variables = complete();
        variables.extend(set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        read(&variables).unwrap_err()
    };
    let (listen, certificate, key) = (
        "ROLLBOX_GATEWAY_TLS_LISTEN",
        "ROLLBOX_GATEWAY_TLS_CERTIFICATE_FILE",
        "ROLLBOX_GATEWAY_TLS_KEY_FILE",
    );
    assert!(read(&complete()).unwrap().tls.is_none());
    assert_eq!(refused(&[(listen, "127.0.0.1:0")]).variable, certificate);
    assert_eq!(refused(&[(listen, "127.0.0.1:0"), (certificate, "/nowhere")]).variable, key);
    assert_eq!(refused(&[(key, "/nowhere")]).rule, "means nothing without ROLLBOX_GATEWAY_TLS_LISTEN");
    let nowhere = refused(&[(listen, "127.0.0.1:0"), (certificate, "/nowhere"), (key, "/nowhere")]);
    assert!(nowhere.rule.contains("/nowhere cannot be read"), "{}", nowhere.rule);
}
