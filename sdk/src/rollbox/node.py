"""Nodes that sandboxes may run on, and how far their drain has come. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Drain:
    """Why and until when a node is emptied.

    Attributes:
        until_ms: when what is left there ends (Unix ms).
        by: who has asked for it, or the mark on the node that says so.
        why: the same for people, as the end of "it ".
    """

    since_ms: int = 0
    until_ms: int = 0
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that sandboxes may run on.

    Attributes:
        state: "ready", "cordoned" (nothing new comes there), "draining" (it is emptied) or "not_ready".
        why: of a state that is not ready.
        max_pods: how many sandboxes it takes at most: its slots, or its kubelet's pods where these are fewer; None: not
            known.
        claimed: sandboxes that run for their owners.
        warm: sandboxes of pools that nobody has claimed.
        starting: sandboxes that are not ready yet.
        drain: None: it is not emptied.
    """

    name: str
    state: str
    why: str = ""
    max_pods: int | None = None
    claimed: int = 0
    warm: int = 0
    starting: int = 0
    drain: Drain | None = None

    @property
    def sandboxes(self) -> int:
        """How many are there, ready or not."""
        return self.claimed + self.warm + self.starting

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Node:
        """Read the wire form; fields that this version does not know are left out."""
        drain = body.get("drain")
        return _read(cls, {**body, "drain": None if drain is None else _read(Drain, drain)})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`."""
        return asdict(self)


NodeList: TypeAlias = list[Node]
"""What `Client.nodes()` returns."""


def _read(kind: type[_T], body: Mapping[str, Any]) -> _T:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known})
