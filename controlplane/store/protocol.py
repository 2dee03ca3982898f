"""The protocol of a store. Every method is one atomic step, also among many replicas.

A store can lose its content; it is rebuilt from the cluster (``restore``). Every implementation passes
``tests/contract/store_suite.py``.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from controlplane.errors import Problem
from controlplane.model import Limits, Sandbox, State, Usage


class UnreadableRecordError(Problem):
    """There is a record that this version cannot read: another version wrote it, or it is damaged."""

    def __init__(self, sandbox_id: str, why: str) -> None:
        detail = f"the record of {sandbox_id} cannot be read by this version of the control plane: {why}"
        super().__init__("internal", detail[:500], sandbox_id=sandbox_id)


class StoreLostError(Exception):
    """The store has lost its content (it was emptied or replaced); it must be rebuilt before any other call."""


class FencedError(Problem):
    """The caller does not hold the lease of its fence; nothing was changed."""

    def __init__(self, fence: "Fence") -> None:
        super().__init__("conflict", f"{fence.holder} does not hold the lease {fence.lease} any more")


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease that ``holder`` must hold at the moment of a step, whenever it was taken."""

    lease: str
    holder: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The sandbox is on record and counted, and it has its key."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Claimed:
    """A warm sandbox was given to the owner and is counted, and it has the key."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Known:
    """Another sandbox has the key already; nothing was changed."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The key was withdrawn before its create arrived, for all calls or for this one; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Full:
    """There is no room; nothing was changed.

    Attributes:
        used: how much of ``limit`` is in use.
        resource: ``total`` (the installation's sandboxes), or a field of the owner's ``Quota``.
    """

    used: int
    limit: int
    resource: str = "total"


Admission = Admitted | Known | Withdrawn | Full
Claim = Claimed | Known | Withdrawn | Full


@dataclass(frozen=True, slots=True)
class Changed:
    """A record that another replica has stored and that is up or has an end.

    Attributes:
        at_ms: when it was stored (Unix ms); the time until it is received is the feed's lag.
    """

    sandbox: Sandbox
    at_ms: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The answer to a request for a start slot; true when it has one.

    Attributes:
        taken: whether it has one.
        avoid: nodes that are at their limit of starts or may come to it: the start should prefer other nodes.
        held_by: without a slot: the full node for which starts with the same placement key have to wait. Empty: any
            slot that is freed may serve it.
        last: with a slot: the next start would get none; this replica is told when it would (``SlotFreed``).
    """

    taken: bool
    avoid: tuple[str, ...] = ()
    held_by: str = ""
    last: bool = False

    def __bool__(self) -> bool:
        return self.taken


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """A start of this replica may have a slot, whichever replica has freed it; one is kept for it for a moment.

    Attributes:
        placement_key: of the starts that may; see ``SandboxSpec.placement_key``.
    """

    placement_key: str = ""


@dataclass(frozen=True, slots=True)
class Resync:
    """The feed has begun, or has reconnected: changes that were stored before may have been missed."""


FeedMessage = Changed | SlotFreed | Resync


@dataclass(frozen=True, slots=True)
class Due:
    """Sandboxes that some replica has to act on: lists of ids, oldest first, bounded.

    Attributes:
        expired: live, and past their expiry.
        overdue: not ready, and past their start deadline.
        unconfirmed: their end began a while ago, and the cluster has not confirmed it.
        abandoned: not ready, and the replica that runs their start is dead.
    """

    expired: Sequence[str] = ()
    overdue: Sequence[str] = ()
    unconfirmed: Sequence[str] = ()
    abandoned: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Some of an owner's sandboxes, for people who look at many.

    Attributes:
        sandboxes: newest first.
        counts: how many of the owner's there are in each state, whichever states were asked for.
    """

    sandboxes: Sequence[Sandbox]
    counts: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class Miscount:
    """A count of use that differed from the records, and was corrected.

    Attributes:
        owner: the owner; None: all owners together.
        counted: the wrong count, by which quotas were checked until then.
        there: the sum over the records.
    """

    owner: str | None
    counted: Usage
    there: Usage


class RebuildTurn(Enum):
    """Whose turn it is to rebuild a store."""

    INTACT = auto()  # no rebuild is needed
    OURS = auto()  # the caller rebuilds it
    THEIRS = auto()  # another replica rebuilds it


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Which replica rebuilds a store, and the name of its content, which is new after each loss.

    Attributes:
        turn: whose turn it is.
        content_id: the name of the content that is there, or that is being restored.
    """

    turn: RebuildTurn
    content_id: str


def is_later(one: Sandbox, other: Sandbox) -> bool:
    """Whether ``one`` is the newer of two records of a sandbox; a restarted store may still have only ``other``."""
    order = [*State]
    return one.version > other.version and order.index(one.state) >= order.index(other.state)


class Store(Protocol):
    """Sandbox records, idempotency keys, counts of use, start slots and leases.

    A record that cannot be read is left out of every list; reading it by id raises ``UnreadableRecordError``.

    Raises, every method: ``Problem`` (upstream_timeout: it does not answer), ``StoreLostError``.
    """

    @property
    def shared(self) -> bool:
        """Whether other replicas use it too: then the work of dead replicas has to be taken over."""
        ...

    @property
    def replica(self) -> str:
        """The name that this process writes on the records of the starts that it runs."""
        ...

    async def admit(self, sandbox: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """Puts a new sandbox on record unless its key is taken or withdrawn, or ``limits`` leave no room for it.

        Raises:
            FencedError: the holder of ``fence`` does not hold its lease.
        """
        ...

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """Gives the owner of ``wish`` the warm sandbox of its template that has been ready longest.

        Taken and withdrawn keys and the owner's quota count as for ``admit``. The total does not, since it includes
        warm sandboxes. No two calls get the same sandbox. A sandbox whose ``ready_at_ms`` is in the future is not
        given before then.

        Returns:
            The claimed record, or why there is none; None: no sandbox is warm, and nothing was changed.
        """
        ...

    async def warm(self, template_hash: str) -> int:
        """How many warm sandboxes of a template (``SandboxSpec.template_hash``) can be claimed."""
        ...

    async def usage(self, owner: str | None) -> Usage:
        """What ``owner`` (None: all owners together) uses, exactly. The owner of a pool is ``pool_owner(name)``."""
        ...

    async def recount(self) -> Sequence[Miscount]:
        """Sums the use of all live records, and corrects ``usage`` where it differs; returns what was wrong.

        Cost: reads every live record in one step: 10 ms of a Redis for 4,096 of them.
        """
        ...

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """The record, also of an ended sandbox; None when there is none, or when it was dropped."""
        ...

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        """As ``get``, but works on a lost store too, and reads what that still has."""
        ...

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """Compare and set: stores ``sandbox`` if the record has ``expected_version``; returns whether it did.

        Use is counted in the same step, by the states before and after. A new record without the idempotency key of
        the old one frees that key.
        """
        ...

    async def restore(self, sandbox: Sandbox) -> bool:
        """Puts a sandbox on record that was found on the cluster, if it has no record, without checking limits.

        It is counted and gets its key. Works on a lost store too, and replaces an older record there (``is_later``).
        Returns whether this call has stored it.
        """
        ...

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """All of ``owner`` (None: of all owners) with all ``labels`` in one of ``states`` (None: any), oldest first."""
        ...

    async def page(self, owner: str, states: Collection[State], offset: int, most: int) -> Page:
        """Some of an owner's sandboxes, newest first, and how many there are.

        Args:
            owner: whose.
            states: any of them.
            offset: so many are left out.
            most: not more than that.

        Cost: reads the ids of ``offset`` + ``most`` sandboxes of each state, and ``most`` records.
        """
        ...

    async def ended_since(self, at_ms: int) -> Sequence[Sandbox]:
        """The sandboxes that have an end, in order of the ends, without those confirmed before ``at_ms`` (Unix ms)."""
        ...

    async def by_key(self, owner: str, key: str) -> Sandbox | None:
        """The sandbox that has this key."""
        ...

    async def withdraw(self, owner: str, key: str, call_id: str = "") -> Sandbox | None:
        """Returns the sandbox that has this key; if none has, withdraws the key, so that late creates are refused.

        Args:
            owner: the owner of the key.
            key: the idempotency key.
            call_id: only creates of this call are refused; empty: all creates are.
        """
        ...

    async def counts(self) -> Mapping[State, int]:
        """How many sandboxes are in each state."""
        ...

    async def take_slot(
        self,
        sandbox_id: str,
        limit: int,
        until_ms: int,
        per_node: int = 0,
        placement_key: str = "",
        *,
        more: bool = False,
    ) -> Slot:
        """Takes one of ``limit`` start slots, over all replicas; repeating is success. ``slots`` has the rule.

        The sandbox keeps it until it is freed, its record says that the start is over, or ``until_ms``. A replica that
        is refused one hears when it may have one (``SlotFreed``).

        Args:
            sandbox_id: the sandbox that starts.
            limit: how many slots there are in all.
            until_ms: when the slot expires (Unix ms).
            per_node: the most starts on one node; 0: nodes are not distinguished.
            placement_key: see ``SandboxSpec.placement_key``.
            more: whether more starts of this replica wait.
        """
        ...

    async def place_slot(
        self, sandbox_id: str, node: str, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> None:
        """Stores on which node a start was placed; it has a slot from then on, even over the limits.

        Does nothing once the start is over.

        Args:
            sandbox_id: whose start.
            node: its name.
            until_ms: Unix time at which the slot is free, whatever becomes of the start.
            per_node: how many starts a node takes at once; 0: any number.
            placement_key: see ``SandboxSpec.placement_key``. Where the node has more starts than ``per_node``, starts
                with this key are held until it has not.
        """
        ...

    async def free_slot(self, sandbox_id: str) -> None:
        """Frees a sandbox's start slot, if it has one, and wakes a replica that wants one."""
        ...

    async def lease(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Takes or renews a lease; whether ``holder`` has it. With ``ttl_ms`` 0, gives it back."""
        ...

    async def note(self, name: str) -> str:
        """The text that is kept by a name; empty: none is, or its time is over."""
        ...

    async def write_note(self, name: str, text: str, ttl_ms: int, *, before: str = "") -> bool:
        """Compare and set of a small text: keeps ``text`` for ``ttl_ms`` if ``before`` is there; whether it did.

        Args:
            name: of the text.
            text: empty: nothing is kept from then on. No two writers write the same, unless
                it makes no difference which of them did: a write whose answer was lost is recognized by its text.
            ttl_ms: how long it is kept.
            before: what has to be there; empty: nothing.
        """
        ...

    async def append(self, name: str, lines: Sequence[str], most: int, ttl_ms: int) -> None:
        """Adds lines to the list of a name, which is kept for ``ttl_ms`` from now on; never read by another name.

        Args:
            name: of the list.
            lines: oldest first; none has a line feed, none is empty. A call that is repeated adds them again.
            most: so many of the newest lines are kept.
            ttl_ms: how long the whole list is kept.
        """
        ...

    async def lines(self, name: str, most: int) -> Sequence[str]:
        """The newest lines of a list, at most so many, oldest first; none where there is no such list."""
        ...

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        """The sandboxes that have to be ended, reclaimed or taken over. Cost: bounded, independent of the records."""
        ...

    def feed(self) -> AsyncIterator[FeedMessage]:
        """The changes that other replicas store, from now on, without end; yields ``Resync`` after each reconnect."""
        ...

    async def claim_rebuild(self, ttl_ms: int) -> Rebuild:
        """Takes the turn to rebuild a new or lost store, unless another replica has it; it lasts for ``ttl_ms``."""
        ...

    async def rebuilt(self, content_id: str) -> bool:
        """Marks the store as complete; False: it was emptied again since the rebuild of ``content_id`` began."""
        ...
