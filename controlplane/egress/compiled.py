"""``Compiled``: a policy as rules alone, the form that is stored, named by its digest and sent to egress."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from controlplane.egress.names import Ports

# As on the wire.
WireMode = Literal["offline", "rules", "open", "dated"]
OFFLINE_NAME: Final = "offline"


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One host or one network; ``id`` is what a refusal names."""

    id: str
    host: str = ""
    cidr: str = ""
    ports: Ports = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A policy without anything that has to be looked up.

    Attributes:
        name: of the preset that it was, or ``custom``.
        limits: by name, without those that are the installation's.
        dated: of mode ``dated``: what is reached through the package cache alone.
        until: of mode ``dated``: what was published from then on is not there; empty in other modes.
        text: its canonical JSON.
        digest: hex SHA-256 of ``text``.
    """

    name: str
    mode: WireMode
    allow: tuple[CompiledRule, ...] = ()
    deny: tuple[CompiledRule, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    dated: tuple[CompiledRule, ...] = ()
    until: str = ""
    text: str = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode()).hexdigest())

    def to_json(self) -> dict[str, Any]:
        """As it is stored, and as callers read it."""
        # Without a date as versions without dates write it, so that digests stay what they were.
        dates = {"dated": [_rule(one) for one in self.dated], "until": self.until} if self.until else {}
        return {
            "name": self.name,
            "mode": self.mode,
            "allow": [_rule(one) for one in self.allow],
            "deny": [_rule(one) for one in self.deny],
            "limits": dict(self.limits),
            **dates,
        }


# What is in force where no policy was ever given, and where one is lost.
OFFLINE: Final = Compiled(OFFLINE_NAME, "offline")


def read_compiled(text: str) -> Compiled | None:
    """Reads ``Compiled.text``; None for any other text."""
    try:
        fields = json.loads(text)
        return Compiled(
            name=str(fields["name"]),
            mode=_mode(fields["mode"]),
            allow=tuple(_read_rule(one) for one in fields["allow"]),
            deny=tuple(_read_rule(one) for one in fields["deny"]),
            limits={str(name): int(value) for name, value in fields["limits"].items()},
            dated=tuple(_read_rule(one) for one in fields.get("dated", ())),
            until=str(fields.get("until", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _rule(rule: CompiledRule) -> dict[str, Any]:
    target = {"host": rule.host} if rule.host else {"cidr": rule.cidr}
    return {"id": rule.id, **target, "ports": [list(one) for one in rule.ports]}


def _read_rule(fields: Mapping[str, Any]) -> CompiledRule:
    ports = tuple((int(first), int(last)) for first, last in fields["ports"])
    return CompiledRule(str(fields["id"]), str(fields.get("host", "")), str(fields.get("cidr", "")), ports)


def _mode(text: str) -> WireMode:
    modes: dict[str, WireMode] = {
        "offline": "offline",
        "rules": "rules",
        "open": "open",
        "dated": "dated",
    }
    return modes[text]
