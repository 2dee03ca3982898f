"""What the control plane asks of a store. Every method is one atomic step, also among many replicas.

A store can be lost: the cluster's truth rebuilds it (``restore``). ``tests/contract/store_suite.py`` is what every
implementation passes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.model import Sandbox, State


@dataclass(frozen=True, slots=True)
class Admitted:
    """The sandbox is on record, counted, and its key taken."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Known:
    """The key is taken by this sandbox; nothing was changed."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The key was withdrawn (deleted before its create arrived); nothing was changed."""


@dataclass(frozen=True, slots=True)
class Full:
    """There is no room: ``used`` of ``limit`` sandboxes are counted; nothing was changed."""

    used: int
    limit: int


Admission = Admitted | Known | Withdrawn | Full


class Store(Protocol):
    """Sandbox records, idempotency keys and the count against the limit."""

    async def admit(self, sandbox: Sandbox, limit: int) -> Admission:
        """Puts a new sandbox on record unless its key is known or withdrawn, or ``limit`` (0 = none) is reached."""
        ...

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """The record, tombstones included; None when there is none, or not any more."""
        ...

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """Compare and set: stores ``sandbox`` if the record has ``expected_version``; tells whether it did.

        A record that goes from a counted state to one that is not leaves the count in the same step; one that gave
        its idempotency key up frees the key.
        """
        ...

    async def restore(self, sandbox: Sandbox) -> None:
        """Puts a sandbox on record that was found on the cluster: counted, key taken, no limit asked."""
        ...

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """All of ``owner`` (None: everybody's) with all ``labels`` and one of ``states`` (None: any), oldest first."""
        ...

    async def by_key(self, owner: str, key: str) -> Sandbox | None:
        """The sandbox that took this key."""
        ...

    async def withdraw(self, owner: str, key: str) -> Sandbox | None:
        """The sandbox that took this key; when there is none, the key is withdrawn: no create may use it any more."""
        ...

    async def counts(self) -> Mapping[State, int]:
        """How many sandboxes are in each state."""
        ...
