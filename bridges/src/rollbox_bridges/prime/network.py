"""Prime's lists of hosts as network policies of rollbox, and back. Pure.

An allowlist that is empty denies all, a denylist that is empty allows all; there is at most one of them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rollbox import EgressPolicy, EgressRule, EgressState
from rollbox_bridges.prime.words import Refusal

_MOST: Final = 1024
_MOST_PORT: Final = 65_535
_ENTRY: Final = re.compile(r"(?P<host>[^\s:@?]{1,253}?)(?::(?P<low>\d{1,5})(?:-(?P<high>\d{1,5}))?)?")
_HOST: Final = re.compile(r"(\*\.)?([A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]+\.?")
# Without ports an entry of names is for the web, as at rollbox, and one of addresses for every port.
_EVERY_PORT: Final = f"1-{_MOST_PORT}"


class Lists(NamedTuple):
    """The two lists; None: it is not given."""

    allow: Sequence[str] | None
    deny: Sequence[str] | None

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {"allowlist": self.allow, "denylist": self.deny}


def policy_of(allow: Any, deny: Any) -> EgressPolicy | None:  # noqa: ANN401 - JSON
    """The policy that two lists say; None where they say nothing.

    Raises:
        Refusal: they are malformed, or both are given.
    """
    if allow is not None and deny is not None:
        raise Refusal(400, "an allowlist and a denylist are both given: give at most one")
    if allow is not None:
        rules = _rules("allowlist", allow)
        return EgressPolicy(mode="allow", allow=rules) if rules else EgressPolicy(mode="none")
    if deny is not None:
        rules = _rules("denylist", deny)
        return EgressPolicy(mode="deny", deny=rules) if rules else EgressPolicy(mode="open")
    return None


def lists_of(state: EgressState) -> Lists:
    """The lists that say a policy, or what of it they can say: the rest of a preset is not in them."""
    allow, deny = (state.rules.get(side) or [] for side in ("allow", "deny"))
    match state.rules.get("mode", "offline"):
        case "open":
            return Lists(None, _entries(deny))
        case "offline":
            return Lists([], None)
    return Lists(_entries(allow), None)


def _rules(name: str, given: Any) -> list[EgressRule]:  # noqa: ANN401 - JSON
    if not isinstance(given, list) or len(given) > _MOST:
        raise Refusal(400, f"the {name} is not a list of at most {_MOST} entries")
    return [_rule(name, one) for one in given]


def _rule(name: str, text: Any) -> EgressRule:  # noqa: ANN401 - JSON
    found = _ENTRY.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise Refusal(400, f"{text!r} of the {name} is neither HOST, CIDR nor one of these with :PORT or :LOW-HIGH")
    host, ports = found["host"], _ports(name, text, found["low"], found["high"])
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise Refusal(400, f"{text!r} of the {name} is neither a host, *.HOST nor a network") from None
        return EgressRule(host=host.lower().rstrip("."), ports=ports)
    return EgressRule(cidr=str(network), ports=ports or (_EVERY_PORT,))


def _ports(name: str, text: str, low: str | None, high: str | None) -> tuple[int | str, ...]:
    if low is None:
        return ()
    first, last = int(low), int(high or low)
    if not 1 <= first <= last <= _MOST_PORT:
        raise Refusal(400, f"the ports of {text!r} of the {name} are not within 1 to {_MOST_PORT}")
    return (first,) if first == last else (f"{first}-{last}",)


def _entries(rules: Sequence[Mapping[str, Any] | str]) -> list[str]:
    return [one for rule in rules for one in _entry(rule)]


def _entry(rule: Mapping[str, Any] | str) -> list[str]:
    if isinstance(rule, str):
        return [rule]
    where = str(rule.get("host") or rule.get("cidr"))
    ports = [str(port) for port in rule.get("ports") or ()]
    return [where] if not ports or ports == [_EVERY_PORT] else [f"{where}:{port}" for port in ports]
