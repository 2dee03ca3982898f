"""The store of a single process, in dictionaries. A step is atomic because it never awaits."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controlplane.clock import Clock
from controlplane.model import Limits, Sandbox, State, Usage
from controlplane.model.states import Change, Event, apply
from controlplane.store.protocol import (
    Admission,
    Admitted,
    Claim,
    Claimed,
    Due,
    FeedMessage,
    Fence,
    FencedError,
    Full,
    Known,
    Miscount,
    Page,
    Rebuild,
    RebuildTurn,
    Resync,
    Slot,
    Withdrawn,
    is_later,
)
from controlplane.store.rows import call_of
from controlplane.store.slots import Slots

TOMBSTONE_MS: Final = 24 * 3_600_000
# About 2 KiB each. Guess: one end a second for a day, which is less than 200 MiB.
MAX_TOMBSTONES: Final = 86_400
MAX_WITHDRAWN: Final = 100_000
# One name for ever: the content is lost only together with the process that would ask.
CONTENT_ID: Final = "memory"

Key = tuple[str, str]
# Owner, key, and the id of the call that has withdrawn it for itself; empty: it is withdrawn for all calls.
CallKey = tuple[str, str, str]


class MemoryStore:
    """Records in memory. Tombstones are dropped after ``tombstone_ms``; earlier, oldest first, if there are too many.

    A key is kept exactly as long as the record that has it; a withdrawn key as long as a tombstone.
    """

    shared = False
    replica = "the only one"

    def __init__(self, clock: Clock, tombstone_ms: int = TOMBSTONE_MS, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self._clock = clock
        self._tombstone_ms = tombstone_ms
        self._max_tombstones = max_tombstones
        self._records: dict[str, Sandbox] = {}
        self._keys: dict[Key, str] = {}
        self._counts: Counter[State] = Counter()
        self._used: dict[str | None, Usage] = {}  # by owner; None: all owners together
        self._warm: dict[str, dict[str, int]] = {}  # template hash -> id -> when it was ready
        self._tombstones: OrderedDict[str, int] = OrderedDict()  # id -> when it ended, oldest first
        self._withdrawn: OrderedDict[CallKey, int] = OrderedDict()  # key -> when it was withdrawn
        self._slots = Slots()
        self._leases: dict[str, tuple[str, int]] = {}
        self._lists: dict[str, tuple[deque[str], int]] = {}  # lines, and until when they are kept
        self._notes: dict[str, tuple[str, int]] = {}  # text, and until when it is kept
        self._intact = False

    async def admit(self, sandbox: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """See ``Store.admit``."""
        if fence is not None and not self._holds(fence):
            raise FencedError(fence)
        if (refused := self._refused(sandbox, limits)) is not None:
            return refused
        self._put(sandbox)
        return Admitted(sandbox)

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """See ``Store.claim``. Cost: O(n) in the warm sandboxes of its template."""
        wish = replace(wish, state=State.RUNNING)
        if (refused := self._refused(wish, Limits(0, limits.quota))) is not None:
            return refused
        now_ms = self._clock.now_ms()
        warm = self._warm.get(wish.spec.template_hash(), {})
        ready = [(at_ms, one) for one, at_ms in warm.items() if at_ms <= now_ms]
        if not ready:
            return None
        before = self._records[min(ready)[1]]
        after = apply(before, Event.CLAIM, Change(wish=wish, claimed_at_ms=now_ms))
        self._drop(before)
        self._put(after)
        return Claimed(after)

    async def warm(self, template_hash: str) -> int:
        """See ``Store.warm``. Cost: O(n) in the warm sandboxes of the template."""
        now_ms = self._clock.now_ms()
        return sum(at_ms <= now_ms for at_ms in self._warm.get(template_hash, {}).values())

    async def usage(self, owner: str | None) -> Usage:
        """See ``Store.usage``."""
        return self._used.get(owner, Usage())

    async def recount(self) -> Sequence[Miscount]:
        """See ``Store.recount``."""
        there: dict[str | None, Usage] = {}
        for one in self._records.values():
            for owner in (one.owner, None) if one.state.counted else ():
                there[owner] = there.get(owner, Usage()) + Usage.of(one)
        owners = {None, *there, *self._used}
        pairs = [(owner, self._used.get(owner, Usage()), there.get(owner, Usage())) for owner in owners]
        self._used.clear()
        self._used.update(there)
        return [Miscount(*pair) for pair in pairs if pair[1] != pair[2]]

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.get``."""
        self._forget()
        return self._records.get(sandbox_id)

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.peek``."""
        return self._records.get(sandbox_id)

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """See ``Store.replace``."""
        old = self._records.get(sandbox.id)
        if old is None or old.version != expected_version:
            return False
        self._drop(old)
        self._put(sandbox)
        return True

    async def restore(self, sandbox: Sandbox) -> bool:
        """See ``Store.restore``."""
        old = self._records.get(sandbox.id)
        if old is not None:
            if self._is_intact() or not is_later(sandbox, old):
                return False
            self._drop(old)
        self._put(sandbox)
        return True

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """See ``Store.find``. Cost: O(n) in all records."""
        self._forget()
        found = (
            one
            for one in self._records.values()
            if (owner is None or one.owner == owner) and (states is None or one.state in states) and one.matches(labels)
        )
        return sorted(found, key=lambda one: (one.created_at_ms, one.id))

    async def page(self, owner: str, states: Collection[State], offset: int, most: int) -> Page:
        """See ``Store.page``. Cost: O(n) in all records."""
        self._forget()
        own = [one for one in self._records.values() if one.owner == owner]
        counts = Counter(one.state for one in own)
        found = sorted(
            (one for one in own if one.state in states), key=lambda one: (one.created_at_ms, one.id), reverse=True
        )
        return Page(found[offset : offset + most], {state: counts[state] for state in State})

    async def ended_since(self, at_ms: int) -> Sequence[Sandbox]:
        """See ``Store.ended_since``. Cost: O(n) in all records."""
        self._forget()
        ended = [one for one in self._records.values() if one.end is not None]
        kept = (one for one in ended if self._tombstones.get(one.id, at_ms) >= at_ms)
        return sorted(kept, key=lambda one: (one.end.at_ms if one.end else 0, one.id))

    async def by_key(self, owner: str, key: str) -> Sandbox | None:
        """See ``Store.by_key``."""
        self._forget()
        sandbox_id = self._keys.get((owner, key))
        return None if sandbox_id is None else self._records[sandbox_id]

    async def withdraw(self, owner: str, key: str, call_id: str = "") -> Sandbox | None:
        """See ``Store.withdraw``."""
        if (known := await self.by_key(owner, key)) is not None:
            return known
        self._withdrawn.setdefault((owner, key, call_id), self._clock.now_ms())
        if len(self._withdrawn) > MAX_WITHDRAWN:
            self._withdrawn.popitem(last=False)
        return None

    async def counts(self) -> Mapping[State, int]:
        """See ``Store.counts``."""
        self._forget()
        return {state: self._counts[state] for state in State}

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
        """See ``Store.take_slot``."""
        now_ms = self._clock.now_ms()
        return self._slots.take(
            sandbox_id,
            limit,
            until_ms,
            now_ms,
            per_node=per_node,
            placement_key=placement_key,
            replica=self.replica if self.shared else "",
            more=more,
        )

    async def place_slot(
        self, sandbox_id: str, node: str, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> None:
        """See ``Store.place_slot``."""
        record = self._records.get(sandbox_id)
        if record is not None and record.state.unready:
            now_ms = self._clock.now_ms()
            self._slots.place(sandbox_id, node, until_ms, now_ms, per_node=per_node, placement_key=placement_key)

    async def free_slot(self, sandbox_id: str) -> None:
        """See ``Store.free_slot``."""
        self._slots.free(sandbox_id)

    async def lease(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See ``Store.lease``."""
        now_ms = self._clock.now_ms()
        held_by, until_ms = self._leases.get(name, (holder, now_ms))
        if held_by != holder and until_ms > now_ms:
            return False
        if not ttl_ms:
            self._leases.pop(name, None)
            return False
        if name not in self._leases:
            # Drops expired leases, so that the names of dead holders do not accumulate.
            for lapsed in [one for one, (_, lapses_ms) in self._leases.items() if lapses_ms <= now_ms]:
                del self._leases[lapsed]
        self._leases[name] = (holder, now_ms + ttl_ms)
        return True

    async def note(self, name: str) -> str:
        """See ``Store.note``."""
        text, until_ms = self._notes.get(name, ("", 0))
        return text if self._clock.now_ms() < until_ms else ""

    async def write_note(self, name: str, text: str, ttl_ms: int, *, before: str = "") -> bool:
        """See ``Store.write_note``. Cost: O(n) in the notes that are kept."""
        if await self.note(name) != before:
            return False
        now_ms = self._clock.now_ms()
        for gone in [one for one, kept in self._notes.items() if kept[1] <= now_ms or one == name]:
            del self._notes[gone]
        if text:
            self._notes[name] = (text, now_ms + ttl_ms)
        return True

    async def append(self, name: str, lines: Sequence[str], most: int, ttl_ms: int) -> None:
        """See ``Store.append``. Cost: O(n) in the lists that are kept."""
        now_ms = self._clock.now_ms()
        kept = [*(await self.lines(name, most)), *lines]
        for gone in [one for one, (_, until_ms) in self._lists.items() if until_ms <= now_ms]:
            del self._lists[gone]
        self._lists[name] = (deque(kept, most), now_ms + ttl_ms)

    async def lines(self, name: str, most: int) -> Sequence[str]:
        """See ``Store.lines``."""
        kept, until_ms = self._lists.get(name, (deque[str](), 0))
        return [*kept][-most:] if self._clock.now_ms() < until_ms else []

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        """See ``Store.due``. Cost: O(n) in all records."""
        everything = [*self._records.values()]
        live = [one for one in everything if one.state.counted]
        return Due(
            expired=[one.id for one in live if one.expires_at_ms <= now_ms],
            overdue=[one.id for one in live if one.state.unready and one.start_by_ms <= now_ms],
            unconfirmed=[
                one.id
                for one in everything
                if one.state is State.ENDING and one.end is not None and one.end.at_ms <= unconfirmed_before_ms
            ],
        )

    async def feed(self) -> AsyncIterator[FeedMessage]:
        """See ``Store.feed``: there are no other replicas, so it yields one ``Resync`` and then nothing."""
        yield Resync()
        await asyncio.get_running_loop().create_future()

    async def claim_rebuild(self, ttl_ms: int) -> Rebuild:
        """See ``Store.claim_rebuild``; ``ttl_ms`` is not needed, since no other replica could take the turn over."""
        del ttl_ms
        return Rebuild(RebuildTurn.INTACT if self._is_intact() else RebuildTurn.OURS, CONTENT_ID)

    async def rebuilt(self, content_id: str) -> bool:
        """See ``Store.rebuilt``."""
        self._intact = content_id == CONTENT_ID
        return self._intact

    def add_tombstone(self, sandbox: Sandbox, ended_at_ms: int) -> None:
        """Restores a tombstone of an earlier process, with its key, until it is too old; call it oldest first."""
        if (before := self._records.get(sandbox.id)) is not None:
            self._drop(before)
        self._put(sandbox)
        self._tombstones[sandbox.id] = ended_at_ms

    def withdrawn_before(self, owner: str, key: str, call_id: str, at_ms: int) -> None:
        """Restores a withdrawn key of an earlier process; call it oldest first.

        Args:
            owner: of the key.
            key: the idempotency key.
            call_id: of the call that was withdrawn; empty: the key is withdrawn for every call.
            at_ms: Unix time at which it was withdrawn.
        """
        self._withdrawn.setdefault((owner, key, call_id), at_ms)

    def _holds(self, fence: Fence) -> bool:
        holder, until_ms = self._leases.get(fence.lease, ("", 0))
        return holder == fence.holder and until_ms > self._clock.now_ms()

    def _refused(self, sandbox: Sandbox, limits: Limits) -> Known | Withdrawn | Full | None:
        self._forget()
        key = _key(sandbox)
        if key in self._keys:
            return Known(self._records[self._keys[key]])
        if key is not None and {(*key, ""), (*key, call_of(sandbox))} & self._withdrawn.keys():
            return Withdrawn()
        # Before the total: an owner over its own quota must not make unclaimed sandboxes give way.
        used = self._used.get(sandbox.owner, Usage())
        if (resource := used.excess(Usage.of(sandbox), limits.quota)) is not None:
            return Full(getattr(used, resource), getattr(limits.quota, resource), resource)
        in_all = self._used.get(None, Usage()).sandboxes
        return Full(in_all, limits.total) if limits.total and in_all >= limits.total else None

    def _is_intact(self) -> bool:
        return self._intact

    def _put(self, sandbox: Sandbox) -> None:
        self._records[sandbox.id] = sandbox
        self._counts[sandbox.state] += 1
        self._use(sandbox, Usage.of(sandbox))
        if not sandbox.state.unready:
            self._slots.free(sandbox.id)
        if sandbox.state is State.WARM:
            self._warm.setdefault(sandbox.spec.template_hash(), {})[sandbox.id] = sandbox.ready_at_ms or 0
        if key := _key(sandbox):
            self._keys.setdefault(key, sandbox.id)
        if sandbox.state is State.ENDED:
            self._tombstones[sandbox.id] = self._clock.now_ms()

    def _drop(self, sandbox: Sandbox) -> None:
        del self._records[sandbox.id]
        self._counts[sandbox.state] -= 1
        self._use(sandbox, Usage() - Usage.of(sandbox))
        if sandbox.state is State.WARM:
            template = sandbox.spec.template_hash()
            del self._warm[template][sandbox.id]
            if not self._warm[template]:
                del self._warm[template]
        if (key := _key(sandbox)) and self._keys.get(key) == sandbox.id:
            del self._keys[key]
        self._tombstones.pop(sandbox.id, None)

    def _use(self, sandbox: Sandbox, more: Usage) -> None:
        for owner in (sandbox.owner, None):
            used = self._used.pop(owner, Usage()) + more
            if used != Usage():
                self._used[owner] = used

    def _forget(self) -> None:
        oldest_ms = self._clock.now_ms() - self._tombstone_ms
        while self._tombstones:
            sandbox_id, ended_at_ms = next(iter(self._tombstones.items()))
            if ended_at_ms > oldest_ms and len(self._tombstones) <= self._max_tombstones:
                break
            self._drop(self._records[sandbox_id])
        while self._withdrawn and next(iter(self._withdrawn.values())) <= oldest_ms:
            self._withdrawn.popitem(last=False)


def _key(sandbox: Sandbox) -> Key | None:
    return None if sandbox.idempotency_key is None else (sandbox.owner, sandbox.idempotency_key)
