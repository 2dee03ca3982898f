"""Policies: what is taken, what is refused and in which words, and the rules that follow."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from controlplane.egress import (
    BUILT_IN,
    MOST_RULES,
    OFFLINE,
    UNBOUND,
    Compiled,
    EgressOptions,
    EgressPolicy,
    PolicyOrPreset,
    compiled,
    read_compiled,
    read_fact,
    read_presets,
)

GIVEN: TypeAdapter[str | EgressPolicy] = TypeAdapter(PolicyOrPreset)


def rules(policy: dict[str, Any], name: str = "custom") -> Compiled:
    return compiled(name, EgressPolicy.model_validate(policy), BUILT_IN.get)


def test_hosts_networks_and_ports_are_brought_to_one_form() -> None:
    made = rules(
        {
            "mode": "allow",
            "allow": [
                "Example.ORG.",
                {"host": "*.Example.org", "ports": [8443, "8000-8010", 8011], "name": "api"},
                "203.0.113.7",
                {"cidr": "2001:DB8::/32", "ports": ["1-65535"]},
            ],
            "deny": [{"host": "bad.example.org"}],
            "limits": {"connections": 5},
        }
    )
    assert [(one.id, one.host, one.cidr, one.ports) for one in made.allow] == [
        ("custom/allow 1", "example.org", "", ((80, 80), (443, 443))),
        ("custom/api", "*.example.org", "", ((8000, 8011), (8443, 8443))),
        ("custom/allow 3", "", "203.0.113.7/32", ((80, 80), (443, 443))),
        ("custom/allow 4", "", "2001:db8::/32", ((1, 65535),)),
    ]
    assert [(one.id, one.host, one.ports) for one in made.deny] == [("custom/deny 1", "bad.example.org", ())]
    assert (made.mode, made.limits) == ("rules", {"connections": 5})
    assert read_compiled(made.text) == made


def dated(policy: dict[str, Any], *cached: str) -> Compiled:
    options = EgressOptions(3128, cached=cached)
    return compiled("custom", EgressPolicy.model_validate(policy), options.presets.get, options.dated)


def test_a_policy_with_a_date_reaches_indexes_through_the_cache_alone() -> None:
    for until in ("2024-06-01", "2024-06-01T00:00:00Z", "2024-06-01T02:00:00+02:00", "2024-06-01T00:00:00"):
        made = dated({"mode": "allow", "include": ["packages"], "until": until}, "pypi.org", "index.test")
        assert (made.mode, made.until) == ("dated", "2024-06-01T00:00:00Z")
    assert {one.host for one in made.dated} >= {"pypi.org", "index.test", "static.crates.io", "deb.debian.org"}
    assert {one.id for one in made.dated} == {"until"}
    assert read_compiled(made.text) == made
    # A policy without a date has the digest that versions without dates gave it.
    assert "until" not in rules({"mode": "open"}).text


def test_of_dates_the_earliest_counts() -> None:
    presets = {
        name: EgressPolicy.model_validate({"mode": "allow", "allow": ["pypi.org"], "until": until})
        for name, until in (("early", "2023-01-01"), ("late", "2025-01-01"))
    }
    policy = EgressPolicy.model_validate({"mode": "allow", "include": ["late", "early"], "until": "2024-01-01"})
    assert compiled("custom", policy, presets.get, ("pypi.org",)).until == "2023-01-01T00:00:00Z"


def test_a_date_needs_a_cache() -> None:
    with pytest.raises(ValueError, match="no package cache is installed here"):
        dated({"mode": "allow", "include": ["packages"], "until": "2024-06-01"})
    text = '{"frozen": {"mode": "allow", "allow": ["pypi.org"], "until": "2024-06-01"}}'
    with pytest.raises(ValueError, match="preset frozen: it has a date"):
        read_presets(text)
    assert read_presets(text, ["pypi.org"])["frozen"].until == "2024-06-01T00:00:00Z"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"mode": "allow"}, "reaches nothing: use mode none"),
        ({"mode": "open", "until": "2024-06-01"}, "mode open has no `until`"),
        ({"mode": "allow", "allow": ["a.example"], "until": "yesterday"}, "must be a date like 2024-06-01"),
        ({"mode": "allow", "allow": ["a.example"], "until": "0001-01-01"}, "must be a year from 1970 on"),
        ({"mode": "allow", "allow": ["a.example"], "until": "9999-12-31T23:59:59-14:00"}, "must be a date like"),
        ({"mode": "none", "allow": ["a.example"]}, "mode none has no rules, and allow is given: use mode allow"),
        ({"mode": "open", "deny": ["a.example"]}, "use mode deny"),
        ({"mode": "deny"}, "denies nothing: use mode open"),
        ({"mode": "deny", "deny": ["a.example"], "allow": ["b.example"]}, "take `allow` out"),
        ({"mode": "allow", "allow": ["a.example"], "deny": ["A.example."]}, "allowed and denied with the same ports"),
        ({"mode": "allow", "allow": ["127.0.0.0/24"]}, "never reached"),
        ({"mode": "allow", "allow": ["169.254.169.254"]}, "never reached"),
        ({"mode": "allow", "allow": ["fe80::1"]}, "never reached"),
        ({"mode": "allow", "allow": [{"cidr": "::ffff:1.2.3.0/120"}]}, "must be written as IPv4"),
        ({"mode": "allow", "allow": ["10.0.0.1/8"]}, "is not a host name"),
        ({"mode": "allow", "allow": [{"cidr": "10.0.0.1/8"}]}, "is not a network"),
        ({"mode": "allow", "allow": ["2130706433"]}, "looks like an address"),
        ({"mode": "allow", "allow": ["0x7f.1"]}, "looks like an address"),
        ({"mode": "allow", "allow": ["ex*mple.org"]}, "as its first label alone"),
        ({"mode": "allow", "allow": ["*.*.org"]}, "as its first label alone"),
        ({"mode": "allow", "allow": ["https://example.org"]}, "is not a host name"),
        ({"mode": "allow", "allow": ["example.org:443"]}, "is not a host name"),
        ({"mode": "allow", "allow": ["a..example"]}, "is not a host name"),
        ({"mode": "allow", "allow": ["münchen.example"]}, "its A-label"),
        ({"mode": "allow", "allow": [""]}, "is not a host name"),
        ({"mode": "allow", "allow": [{"host": "a.example", "cidr": "1.2.3.4"}]}, "a host or a cidr"),
        ({"mode": "allow", "allow": [{"ports": [80]}]}, "a host or a cidr"),
        ({"mode": "allow", "allow": [{"host": "a.example", "ports": [0]}]}, "must be from 1 to 65535"),
        ({"mode": "allow", "allow": [{"host": "a.example", "ports": ["9-8"]}]}, "the smaller one first"),
        ({"mode": "allow", "allow": [{"host": "a.example", "ports": ["http"]}]}, "must be a number"),
        ({"mode": "allow", "allow": [{"host": "a.example", "port": 80}]}, "Extra inputs"),
        ({"mode": "closed"}, "Input should be"),
        ({"mode": "allow", "allow": ["a.example"], "limits": {"connections": 257}}, "less than or equal to 256"),
        ({}, "Field required"),
        ("Packages", "should match pattern"),
        (3, "valid dictionary"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_the_words_say_why(policy: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        GIVEN.validate_python(policy)


def test_so_many_rules_and_no_more() -> None:
    hosts = [f"h{number}.example" for number in range(MOST_RULES + 1)]
    assert len(rules({"mode": "allow", "allow": hosts[1:]}).allow) == MOST_RULES
    with pytest.raises(ValidationError, match="2001 rules are more than 2000"):
        EgressPolicy.model_validate({"mode": "allow", "allow": hosts})
    with pytest.raises(ValueError, match="more than 2000"):
        rules({"mode": "allow", "allow": hosts[1:], "include": ["packages"]})


def test_included_presets_bring_their_rules_under_their_own_names() -> None:
    made = rules({"mode": "allow", "include": ["packages"], "allow": [{"host": "trainer.example", "name": "trainer"}]})
    ids = [one.id for one in made.allow]
    assert ids[0] == "custom/trainer"
    assert "packages/pypi" in ids


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"mode": "allow", "include": ["nothing"]}, "there is no preset nothing"),
        ({"mode": "allow", "include": ["swe-eval"]}, "preset swe-eval has mode deny"),
        ({"mode": "deny", "include": ["packages"]}, "preset packages has mode allow"),
    ],
)
def test_what_cannot_be_included(policy: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rules(policy)


def test_the_presets_of_every_installation() -> None:
    made = {name: compiled(name, policy, BUILT_IN.get) for name, policy in BUILT_IN.items()}
    assert made["offline"] == OFFLINE
    allowed = {one.host for one in made["packages"].allow}
    assert {"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "proxy.golang.org"} <= allowed
    assert not {host for host in allowed if "git" in host}
    denied = {one.host for one in made["swe-eval"].deny}
    assert {"github.com", "*.github.com", "*.githubusercontent.com", "gitlab.com", "*.github.io"} <= denied
    remote = [one for one in made["swe-eval"].deny if one.id == "swe-eval/remote-git"]
    assert {(one.host or one.cidr, one.ports) for one in remote} == {
        (everywhere, ((22, 22), (9418, 9418))) for everywhere in ("*", "0.0.0.0/0", "::/0")
    }


def test_an_operators_file_adds_presets_and_replaces_built_in_ones() -> None:
    text = json.dumps({"packages": {"mode": "allow", "allow": ["index.inside.example"]}, "web": {"mode": "open"}})
    presets = read_presets(text)
    assert sorted(presets) == ["offline", "packages", "swe-eval", "web"]
    assert [one.host for one in presets["packages"].allow] == ["index.inside.example"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must hold JSON"),
        ("[]", "policies by name"),
        ('{"offline": {"mode": "open"}}', "preset offline: the name has its meaning"),
        ('{"custom": {"mode": "open"}}', "preset custom"),
        ('{"a": {"mode": "allow", "include": ["b"]}, "b": {"mode": "allow", "include": ["a"]}}', "includes itself"),
        ('{"a": {"mode": "allow", "include": ["b"]}}', "preset a: there is no preset b"),
        ('{"A": {"mode": "open"}}', "policies by name: A"),
        ('{"a": {"mode": "allow"}}', "policies by name: a"),
    ],
)
def test_an_operators_file_that_is_not_sound(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_presets(text)


def test_a_switch_is_a_later_revision_also_when_the_clock_was_set_back() -> None:
    packages = compiled("packages", BUILT_IN["packages"], BUILT_IN.get)
    one = UNBOUND.switched(packages, 100)
    assert (one.name, one.revision, one.in_force, one.bound) == ("packages", 100, False, True)
    assert one.switched(packages, 200) is one
    two = one.confirmed(100, 0).switched(OFFLINE, 50)
    assert (two.revision, two.applied, two.in_force) == (101, 100, False)
    assert two.confirmed(100, 9) is two
    assert two.confirmed(102, 9) is two
    assert (two.confirmed(101, 3).cut, two.confirmed(101, 3).in_force) == (3, True)


def test_the_fact_of_a_cluster_reads_back_and_nothing_else_does() -> None:
    packages = compiled("packages", BUILT_IN["packages"], BUILT_IN.get)
    binding = UNBOUND.switched(packages, 100)
    assert read_fact(binding.fact(packages)) == (binding, packages)
    for other in ("", ":", "100:", "100:{}", f"x:{packages.text}", f"100:{packages.text[:-1]}", "1:[]", "1:null"):
        assert read_fact(other) is None
