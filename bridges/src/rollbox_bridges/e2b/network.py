"""E2B's network settings as network policies of rollbox. Pure."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from rollbox import EgressPolicy, EgressRule
from rollbox_bridges.e2b.words import Refusal, unsupported

# What a client may say of a network and what is read of it here.
_LISTS: Final = frozenset({"allowOut", "denyOut"})
_NOTHING: Final[tuple[Any, ...]] = (None, [], {}, "")
_ALL: Final = "0.0.0.0/0"


def egress_of(
    internet: Any,  # noqa: ANN401 - JSON
    network: Any,  # noqa: ANN401 - JSON
    default: str | None,
) -> str | EgressPolicy | None:
    """The policy of a sandbox.

    Args:
        internet: `allow_internet_access`: false is offline, whatever else is said. True is what clients send unless
            they are told otherwise, so that it means the operator's default.
        network: `network`: with lists of what is allowed and denied.
        default: the operator's policy.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    if internet is not None and not isinstance(internet, bool):
        raise Refusal(400, f"allow_internet_access {internet!r} is neither true nor false")
    policy = policy_of(network)
    if internet is False:
        return "offline"
    return default if policy is None else policy


def policy_of(network: Any) -> EgressPolicy | None:  # noqa: ANN401 - JSON
    """The policy that lists of a network say; None where they say nothing.

    E2B's rules: what is allowed is reached even where it is denied. So a list of what is allowed together with a denial
    of everything is a policy of what is allowed; a denial alone is one of all else.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    if network is None:
        return None
    if not isinstance(network, dict):
        raise Refusal(400, "network is not an object")
    for name, value in network.items():
        if name not in _LISTS and name != "allowPublicTraffic" and value not in _NOTHING:
            raise unsupported(f"network.{name}")
    allow, deny = _rules(network, "allowOut"), _rules(network, "denyOut")
    if deny == [_ALL]:
        return EgressPolicy(mode="allow", allow=[_rule(one) for one in allow]) if allow else EgressPolicy(mode="none")
    if allow and deny:
        raise unsupported("network.allowOut with a denyOut other than all", f"Deny {_ALL!r}, or name one of the two.")
    if deny:
        return EgressPolicy(mode="deny", deny=[_rule(one) for one in deny])
    return EgressPolicy(mode="open") if allow else None


def _rules(network: dict[str, Any], name: str) -> list[str]:
    found = network.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise Refusal(400, f"network.{name} is not a list of texts")
    return found


def _rule(text: str) -> EgressRule:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return EgressRule(host=text)
    return EgressRule(cidr=text)
