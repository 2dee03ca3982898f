"""verifiers' network policies in rollbox's words."""

from __future__ import annotations

import pytest
from verifiers.v1.configs.runtime import NetworkPolicyConfig

from rollbox import EgressPolicy, EgressRule
from rollbox_integrations.verifiers.network import policy

ROUTE = EgressRule(host="trainer.net", ports=(443,))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, EgressPolicy(mode="open")),
        ({"allow": []}, EgressPolicy(mode="allow", allow=[ROUTE])),
        ({"block": ["*"]}, EgressPolicy(mode="allow", allow=[ROUTE])),
        ({"allow": ["a.org"]}, EgressPolicy(mode="allow", allow=[ROUTE, EgressRule(host="a.org")])),
        ({"allow": ["*.a.org"]}, EgressPolicy(mode="allow", allow=[ROUTE, EgressRule(host="*.a.org")])),
        ({"allow": ["a.org:99"]}, EgressPolicy(mode="allow", allow=[ROUTE, EgressRule(host="a.org", ports=(99,))])),
        (
            {"allow": ["http://a.org/path"]},
            EgressPolicy(mode="allow", allow=[ROUTE, EgressRule(host="a.org", ports=(80,))]),
        ),
        ({"allow": ["10.1.0.0/16"]}, EgressPolicy(mode="allow", allow=[ROUTE, EgressRule(cidr="10.1.0.0/16")])),
        ({"allow": ["2001:db8::1"]}, EgressPolicy(mode="allow", allow=[ROUTE, EgressRule(cidr="2001:db8::1/128")])),
        (
            {"block": ["a.org"]},
            EgressPolicy(mode="deny", deny=[EgressRule(host="a.org"), EgressRule(host="*.a.org")]),
        ),
        ({"block": ["*.a.org"]}, EgressPolicy(mode="deny", deny=[EgressRule(host="*.a.org")])),
    ],
)
def test_a_policy_is_held_as_it_is_meant(given: dict[str, list[str]], expected: EgressPolicy) -> None:
    assert policy(NetworkPolicyConfig(**given), ["https://trainer.net/v1"]) == expected


def test_without_a_route_nothing_is_nothing() -> None:
    assert policy(NetworkPolicyConfig(allow=[]), []) == EgressPolicy(mode="none")


@pytest.mark.parametrize("rule", ["a*.org", "api-[12].a.org", "a.org:many", "https://"])
def test_what_cannot_be_held_is_refused_by_its_text(rule: str) -> None:
    with pytest.raises(ValueError, match="the network rule"):
        policy(NetworkPolicyConfig(allow=[rule]), [])
