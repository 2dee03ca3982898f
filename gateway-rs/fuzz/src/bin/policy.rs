//! Policies and their decisions, compared with a reading of each rule that has no index.
#![no_main]

use egress::policy::{Blocked, Host, PACKAGES, Policy, Target};
use ipnet::IpNet;
use prost::Message;
use wire::egress::{self as messages, Mode, PortRange, Rule};

/// A port, the length of a target's text, the text, and a policy.
fn check(bytes: &[u8]) {
    let [high, low, length, rest @ ..] = bytes else { return };
    let Some((text, policy)) = rest.split_at_checked((*length).into()) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(target) = Target::parse(text, Some(u16::from_be_bytes([*high, *low]).max(1))) else { return };
    let Ok(message) = messages::Policy::decode(policy) else { return };
    if let Ok(policy) = Policy::read(&message) {
        check_decision(&policy, &message, &target);
        check_address(&policy, &message, &target);
    }
}

fn check_decision(policy: &Policy, message: &messages::Policy, target: &Target) {
    let Target { host, port } = target;
    let named = |rules: &[Rule], all| rules.iter().any(|rule| names(rule, host, *port, all));
    let allowed = match message.mode() {
        Mode::Offline => false,
        Mode::Open => !named(&message.deny, true),
        Mode::Rules | Mode::Dated => !named(&message.deny, true) && named(&message.allow, false),
    };
    assert_eq!(policy.target(target).is_ok(), allowed, "{target} by {message:?}");
    let cached = named(&message.dated, true) || host.to_string() == PACKAGES;
    assert_eq!(policy.direct(target).is_ok(), allowed && !cached, "{target} by {message:?}");
    if let (Host::Name(_), Err(refusal)) = (host, policy.server_name(target, Some(host))) {
        panic!("{target} is not its own server name: {refusal:?}");
    }
}

fn check_address(policy: &Policy, message: &messages::Policy, target: &Target) {
    let Host::Address(address) = target.host else { return };
    let blocked = Blocked::default();
    let denied = message.deny.iter().any(|rule| names(rule, &target.host, target.port, true));
    let expected = blocked.class(address).is_none() && !denied;
    assert_eq!(policy.address(target, address, &blocked).is_ok(), expected, "{target} by {message:?}");
}

fn names(rule: &Rule, host: &Host, port: u16, all: bool) -> bool {
    let within = |range: &PortRange| (range.first..=range.last).contains(&port.into());
    let usual = rule.ports.is_empty() && (all || matches!(port, 80 | 443));
    let is_named = match host {
        Host::Name(name) => {
            let wanted = rule.host.to_ascii_lowercase();
            let wanted = wanted.strip_suffix('.').unwrap_or(&wanted);
            let below = wanted.strip_prefix("*.").and_then(|parent| name.strip_suffix(parent));
            wanted == "*"
                || wanted == &**name
                || below.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
        Host::Address(address) => rule.cidr.parse::<IpNet>().is_ok_and(|net| net.contains(address)),
    };
    is_named && (usual || rule.ports.iter().any(within))
}

fn seeds() -> Vec<Vec<u8>> {
    let host = |host: &str| Rule { id: "r".into(), host: host.into(), ..Rule::default() };
    let net = |cidr: &str| Rule { id: "n".into(), cidr: cidr.into(), ..Rule::default() };
    let ports = vec![PortRange { first: 1, last: 90 }];
    let rules = messages::Policy {
        mode: Mode::Rules.into(),
        allow: vec![host("*.a.test"), host("*"), Rule { ports, ..net("8.8.0.0/16") }],
        deny: vec![host("b.a.test"), net("8.8.4.0/24")],
        ..messages::Policy::default()
    };
    let dated = messages::Policy {
        mode: Mode::Dated.into(),
        until: "2024-06-01T00:00:00Z".into(),
        dated: vec![host("pypi.org")],
        ..rules.clone()
    };
    let open = messages::Policy { mode: Mode::Open.into(), ..rules.clone() };
    let with = |text: &str, policy: &messages::Policy| {
        [&[0, 80, u8::try_from(text.len()).expect("short")][..], text.as_bytes(), &policy.encode_to_vec()]
            .concat()
    };
    vec![
        with("c.a.test:443", &rules),
        with("8.8.8.8", &rules),
        with("pypi.org", &dated),
        with("b.A.test.", &open),
    ]
}

fuzz::target!(seeds().iter().map(Vec::as_slice).collect::<Vec<_>>(), check);
