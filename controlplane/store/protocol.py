"""What the control plane asks of a store. Every method is one atomic step, also among many replicas.

A store can be lost: the cluster's truth rebuilds it (``restore``). ``tests/contract/store_suite.py`` is what every
implementation passes.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from controlplane.errors import Problem
from controlplane.model import Limits, Sandbox, State, Usage


class UnreadableRecordError(Problem):
    """There is a record, and this version cannot read it: another one has written it, or it is damaged."""

    def __init__(self, sandbox_id: str, why: str) -> None:
        detail = f"the record of {sandbox_id} cannot be read by this version of the control plane: {why}"
        super().__init__("internal", detail[:500], sandbox_id=sandbox_id)


class StoreLostError(Exception):
    """The store has forgotten what it held (emptied, replaced); it has to be rebuilt before anything else is asked."""


class FencedError(Problem):
    """Who asked has lost the lease that he acts under; nothing was changed."""

    def __init__(self, fence: "Fence") -> None:
        super().__init__("conflict", f"{fence.holder} does not hold the lease {fence.lease} any more")


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease that its holder must have at the moment of a step, however long ago he took it."""

    lease: str
    holder: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The sandbox is on record, counted, and its key taken."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Claimed:
    """A warm sandbox is its owner's now, counted, and its key taken."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Known:
    """The key is taken by this sandbox; nothing was changed."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The key was withdrawn (deleted before its create arrived), for all or for this call; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Full:
    """There is no room; nothing was changed.

    Attributes:
        used: so much of it is counted, of ``limit``.
        resource: ``total``, the installation's sandboxes, or a field of the owner's ``Quota``.
    """

    used: int
    limit: int
    resource: str = "total"


Admission = Admitted | Known | Withdrawn | Full
Claim = Claimed | Known | Withdrawn | Full


@dataclass(frozen=True, slots=True)
class Changed:
    """Another replica has stored this: a sandbox is warm, runs, lives longer, or its end has begun. Without its
    environment.

    Attributes:
        at_ms: when it was stored; what it took to hear of it is the feed's lag.
    """

    sandbox: Sandbox
    at_ms: int


@dataclass(frozen=True, slots=True)
class Slot:
    """What became of the wish for a start slot; true when it has one.

    Attributes:
        avoid: nodes that have as many starts as they bear: what is sent shall rather come to others.
        held_by: of one without a slot: the full node that starts like it have to wait for. Empty: whatever is given
            back next may be its.
    """

    taken: bool
    avoid: tuple[str, ...] = ()
    held_by: str = ""

    def __bool__(self) -> bool:
        return self.taken


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """Another replica has given a start slot back, or has heard on which node a start is."""


@dataclass(frozen=True, slots=True)
class Resync:
    """The feed begins, or begins again: what was stored before this may not have been told."""


News = Changed | SlotFreed | Resync


@dataclass(frozen=True, slots=True)
class Due:
    """What somebody has to do something about; ids, oldest first, bounded.

    Attributes:
        expired: live, and their time has passed.
        overdue: not ready, and their start deadline has passed.
        unconfirmed: their end began a while ago, and no cluster has confirmed it.
        abandoned: not ready, and the replica that brings them up has gone.
    """

    expired: Sequence[str] = ()
    overdue: Sequence[str] = ()
    unconfirmed: Sequence[str] = ()
    abandoned: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Miscount:
    """Use that was counted otherwise than the records say, and is right now.

    Attributes:
        owner: whose; None: everybody's together.
        counted: what quotas went by until then.
        there: what the records add up to.
    """

    owner: str | None
    counted: Usage
    there: Usage


class Custody(Enum):
    """Whose turn it is to rebuild a store."""

    INTACT = auto()  # nobody's: it holds what it should
    OURS = auto()  # the caller's
    THEIRS = auto()  # another replica does it


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Who rebuilds a store, and what the filling is called that is there or being made: another one after each loss."""

    custody: Custody
    filling: str


def is_later(one: Sandbox, other: Sandbox) -> bool:
    """Whether of two records of a sandbox the one was written after the other: a restarted store may have lost it."""
    order = [*State]
    return one.version > other.version and order.index(one.state) >= order.index(other.state)


class Store(Protocol):
    """Sandbox records, idempotency keys, the count against the limit, start slots and leases.

    A record that cannot be read is left out of every list; asked for by name it is an ``UnreadableRecordError``.

    Raises, every method: ``Problem`` (upstream_timeout: it does not answer), ``StoreLostError``.
    """

    @property
    def shared(self) -> bool:
        """Whether other replicas use it too: then somebody has to do what a replica that died has left."""
        ...

    @property
    def replica(self) -> str:
        """The name that this process writes on the records of the starts that it runs."""
        ...

    async def admit(self, sandbox: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """Puts a new sandbox on record unless its key is known or withdrawn, or ``limits`` leave no room for it.

        Raises:
            FencedError: the lease of ``fence`` is not its holder's now.
        """
        ...

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """Gives the owner of ``wish`` the warm sandbox of its template that has been ready longest, as it then is.

        Known and withdrawn keys and the owner's quota count as for ``admit``; the total does not: a warm one is in it.
        Of many calls no two get the same sandbox. None: none is warm; nothing was changed. A sandbox that is warm from
        a moment to come (``ready_at_ms``) is not given before it.
        """
        ...

    async def warm(self, template_hash: str) -> int:
        """How many warm sandboxes of a template (``SandboxSpec.template_hash``) can be claimed now."""
        ...

    async def usage(self, owner: str | None) -> Usage:
        """What ``owner`` (None: everybody together) uses now; exact. A pool's own is that of ``pool_owner(name)``."""
        ...

    async def recount(self) -> Sequence[Miscount]:
        """Adds up what the live records weigh, and puts ``usage`` right where it says something else; what was wrong.

        Cost: one look at every live record, in one step: 10 ms of a Redis for 4,096 of them.
        """
        ...

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """The record, tombstones included; None when there is none, or not any more."""
        ...

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        """As ``get``, of a lost store too: what it has still."""
        ...

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """Compare and set: stores ``sandbox`` if the record has ``expected_version``; tells whether it did.

        A record that goes from a counted state to one that is not leaves the count in the same step; one that gave
        its idempotency key up frees the key.
        """
        ...

    async def restore(self, sandbox: Sandbox) -> bool:
        """Puts a sandbox on record that was found on the cluster, unless it is: counted, key taken, no limit asked.

        Works on a lost store too, and takes the place of an earlier moment of the same life there (``is_later``).
        Tells whether it is on record by this call.
        """
        ...

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """All of ``owner`` (None: everybody's) with all ``labels`` and one of ``states`` (None: any), oldest first."""
        ...

    async def ended_since(self, at_ms: int) -> Sequence[Sandbox]:
        """What has an end, in the order of the ends; those confirmed before ``at_ms`` are left out."""
        ...

    async def by_key(self, owner: str, key: str) -> Sandbox | None:
        """The sandbox that took this key."""
        ...

    async def withdraw(self, owner: str, key: str, call_id: str = "") -> Sandbox | None:
        """The sandbox that took this key; when there is none, the key is withdrawn: no create may use it any more.

        Args:
            owner: whose key.
            key: which one.
            call_id: no create of this call may use it any more, others may; empty: none may.
        """
        ...

    async def counts(self) -> Mapping[State, int]:
        """How many sandboxes are in each state."""
        ...

    async def take_slot(
        self, sandbox_id: str, limit: int, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> Slot:
        """Takes one of ``limit`` start slots, over all replicas; repeating is success. ``slots.Slots`` tells the rule.

        It is the sandbox's until it is given back, its record says that the start is over, or ``until_ms``.

        Args:
            sandbox_id: whose.
            limit: how many there are in all.
            until_ms: when it lapses.
            per_node: how many starts a node bears; 0: it is not told where they are.
            placement_key: see ``SandboxSpec.placement_key``.
        """
        ...

    async def place_slot(
        self, sandbox_id: str, node: str, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> None:
        """Says on which node a start is; it has a slot from then on, whatever the limits are. Not once it is over."""
        ...

    async def free_slot(self, sandbox_id: str) -> None:
        """Gives the slot back, if it has one; other replicas hear of it."""
        ...

    async def lease(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Takes or renews a lease; tells whether ``holder`` has it. With ``ttl_ms`` 0, gives it back."""
        ...

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        """What has to be ended, reclaimed or taken over by somebody. Cost: bounded, whatever is on record."""
        ...

    def feed(self) -> AsyncIterator[News]:
        """What other replicas store, from now on and without end; it reconnects by itself, and says so (Resync)."""
        ...

    async def claim_rebuild(self, ttl_ms: int) -> Rebuild:
        """Asks who rebuilds a new or lost store; the turn ends after ``ttl_ms``, or with ``rebuilt``."""
        ...

    async def rebuilt(self, filling: str) -> bool:
        """Says that the store holds what it should, from now on; False: it was emptied since this one was begun."""
        ...

    async def epoch(self) -> str:
        """Which filling of the store this is: another one after every loss."""
        ...
