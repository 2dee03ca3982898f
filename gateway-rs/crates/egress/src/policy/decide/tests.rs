use proptest::prelude::*;
use wire::egress::{PortRange, Rule};

use super::*;

fn rule(text: &str) -> Rule {
    let (host, ports) = text.split_once(' ').map_or((text, None), |(host, ports)| (host, Some(ports)));
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        PortRange { first: first.parse().unwrap(), last: last.parse().unwrap() }
    };
    let ports = ports.map(|ports| ports.split(',').map(range).collect()).unwrap_or_default();
    let rule = Rule { id: text.to_owned(), ports, ..Rule::default() };
    if host.contains('/') {
        Rule { cidr: host.to_owned(), ..rule }
    } else {
        Rule { host: host.to_owned(), ..rule }
    }
}

fn made(mode: Mode, allow: &[&str], deny: &[&str]) -> Result<Policy, BrokenRule> {
    let list = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect();
    Policy::read(&egress::Policy {
        name: "test".to_owned(),
        mode: mode.into(),
        allow: list(allow),
        deny: list(deny),
        ..egress::Policy::default()
    })
}

fn decided(policy: &Policy, target: &str) -> Result<String, Verdict> {
    let target = Target::parse(target, None).unwrap();
    policy.target(&target).map(str::to_owned).map_err(|refusal| refusal.verdict)
}

#[test]
fn names_wildcards_and_ports_allow_what_they_say() {
    let policy =
        made(Mode::Rules, &["a.test", "*.b.test", "c.test 22,8000-8099", "9.9.9.0/24"], &[]).unwrap();
    for (target, rule) in [
        ("a.test:443", "a.test"),
        ("a.test:80", "a.test"),
        ("x.b.test:443", "*.b.test"),
        ("x.y.b.test:443", "*.b.test"),
        ("c.test:22", "c.test 22,8000-8099"),
        ("c.test:8099", "c.test 22,8000-8099"),
        ("9.9.9.9:443", "9.9.9.0/24"),
    ] {
        assert_eq!(decided(&policy, target).as_deref(), Ok(rule), "{target}");
    }
    for target in [
        "a.test:22",
        "x.a.test:443",
        "b.test:443",
        "xb.test:443",
        "b.test.evil.test:443",
        "c.test:443",
        "c.test:8100",
        "9.9.8.9:443",
        "9.9.9.9:22",
        "[2001:db8::1]:443",
    ] {
        assert_eq!(decided(&policy, target), Err(Verdict::DeniedName), "{target}");
    }
}

#[test]
fn any_name_is_no_address() {
    let policy = made(Mode::Rules, &["*"], &[]).unwrap();
    assert_eq!(decided(&policy, "a.test:443").as_deref(), Ok("*"));
    assert_eq!(decided(&policy, "9.9.9.9:443"), Err(Verdict::DeniedName));
}

#[test]
fn a_denial_wins_over_what_is_more_special() {
    let policy = made(Mode::Rules, &["a.b.test", "*"], &["*.b.test"]).unwrap();
    assert_eq!(decided(&policy, "a.b.test:443"), Err(Verdict::DeniedName));
    assert_eq!(decided(&policy, "b.test:443").as_deref(), Ok("*"));
    let open = made(Mode::Open, &[], &["*.git.test", "* 22", "9.0.0.0/8"]).unwrap();
    for (target, verdict) in [
        ("x.git.test:1", Verdict::DeniedName),
        ("a.test:22", Verdict::DeniedName),
        ("9.1.1.1:443", Verdict::DeniedAddress),
    ] {
        assert_eq!(decided(&open, target), Err(verdict), "{target}");
    }
    assert_eq!(decided(&open, "a.test:443").as_deref(), Ok(""));
    // A name that resolves to what is denied is denied then.
    let target = Target::parse("a.test:443", None).unwrap();
    let refusal = open.address(&target, "9.1.1.1".parse().unwrap(), &Blocked::default()).unwrap_err();
    assert_eq!(&*refusal.rule, "9.0.0.0/8");
}

#[test]
fn what_cannot_be_read_is_named() {
    for text in ["*x.test", "a..test", "127.1", "10.0.0.0/33", "a.test 0", "a.test 9-8", "a.test 70000", ""] {
        assert_eq!(made(Mode::Open, &[], &[text]).unwrap_err().id, text, "{text}");
    }
    let both =
        Rule { id: "both".into(), host: "a.test".into(), cidr: "10.0.0.0/8".into(), ..Rule::default() };
    assert!(Policy::read(&egress::Policy { deny: vec![both], ..egress::Policy::default() }).is_err());
    assert!(Policy::read(&egress::Policy { mode: 7, ..egress::Policy::default() }).is_err());
}

#[test]
fn tls_counts_where_names_do() {
    let tls = |policy: &Policy, target: &str| policy.tls(&Target::parse(target, None).unwrap());
    let rules = made(Mode::Rules, &["a.test", "9.9.9.9/32"], &[]).unwrap();
    assert_eq!((tls(&rules, "a.test:443"), tls(&rules, "a.test:8443")), (Tls::Required, Tls::Checked));
    assert_eq!(tls(&rules, "9.9.9.9:443"), Tls::Free);
    let open = made(Mode::Open, &[], &["9.0.0.0/8"]).unwrap();
    assert_eq!(tls(&open, "a.test:443"), Tls::Free);
    let denies = made(Mode::Open, &[], &["git.test"]).unwrap();
    assert_eq!(
        (tls(&denies, "a.test:443"), tls(&denies, "8.8.8.8:443"), tls(&denies, "8.8.8.8:80")),
        (Tls::Required, Tls::Required, Tls::Checked)
    );
}

#[test]
fn a_date_holds_for_addresses_of_indexes_too() {
    let policy = Policy::read(&egress::Policy {
        mode: Mode::Dated.into(),
        allow: vec![rule("9.0.0.0/8"), rule("pypi.test")],
        dated: vec![rule("pypi.test")],
        until: "2024-06-01T00:00:00Z".to_owned(),
        ..egress::Policy::default()
    })
    .unwrap();
    let address = Target::parse("9.9.9.9:443", None).unwrap();
    assert!(policy.direct(&address).is_ok());
    assert_eq!(policy.tls(&address), Tls::Required);
    let named = |name: &str| policy.server_name(&address, Some(&Host::parse(name).unwrap()));
    assert_eq!(&*named("pypi.test").unwrap_err().rule, "pypi.test");
    assert!(named("other.test").is_ok());
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab](\\.[ab]){0,2}\\.test".boxed(),
        (0u8..4, 0u8..4).prop_map(|(c, d)| format!("9.9.{c}.{d}")).boxed(),
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab](\\.[ab]){0,2}\\.test".boxed(),
        "\\*\\.[ab](\\.[ab]){0,1}\\.test".boxed(),
        Just("*".to_owned()).boxed(),
        (0u8..4, 22u8..33).prop_map(|(c, length)| format!("9.9.{c}.0/{length}")).boxed(),
    ]
}

fn texts(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// What a rule says, in the simplest words.
fn names(pattern: &str, host: &Host) -> bool {
    match (host, pattern.strip_prefix("*.")) {
        (Host::Address(address), _) => pattern.parse::<ipnet::IpNet>().is_ok_and(|net| net.contains(address)),
        (Host::Name(_), None) if pattern == "*" => true,
        (Host::Name(name), Some(parent)) => name.ends_with(&format!(".{parent}")),
        (Host::Name(name), None) => **name == *pattern,
    }
}

proptest! {
    #[test]
    fn rules_decide_as_their_words_say(
        allow in prop::collection::vec(pattern(), 0..5),
        deny in prop::collection::vec(pattern(), 0..5),
        host in host(),
        open: bool,
    ) {
        let mode = if open { Mode::Open } else { Mode::Rules };
        let policy = made(mode, &texts(&allow), &texts(&deny)).unwrap();
        let target = Target { host: Host::parse(&host).unwrap(), port: 443 };
        let denied = deny.iter().find(|pattern| names(pattern, &target.host));
        let allowed = allow.iter().find(|pattern| names(pattern, &target.host));
        match policy.target(&target) {
            Ok(rule) => {
                prop_assert!(denied.is_none() && (open || allowed.is_some()));
                prop_assert_eq!(rule, if open { "" } else { allowed.unwrap() });
            }
            Err(refusal) => {
                prop_assert!(denied.is_some() || (!open && allowed.is_none()));
                prop_assert_eq!(&*refusal.rule, denied.map_or("", String::as_str));
            }
        }
    }

    #[test]
    fn what_is_never_reached_is_refused_by_every_policy(address: u32, allow in pattern()) {
        let blocked = Blocked::default();
        let address = std::net::Ipv4Addr::from_bits(address).into();
        let policy = made(Mode::Open, &[&allow], &[]).unwrap();
        let target = Target { host: Host::Address(address), port: 443 };
        prop_assert_eq!(policy.address(&target, address, &blocked).is_ok(), blocked.class(address).is_none());
    }
}
