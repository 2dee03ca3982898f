"""The store of many replicas: every step is one script in one Redis, and publishes its change to all replicas."""

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from itertools import count
from typing import Any, Final, Self

from controlplane.clock import Clock
from controlplane.model import GROUP, Limits, Quota, Sandbox, State, Usage
from controlplane.store import feed
from controlplane.store.calls import Calls
from controlplane.store.opening import loaded
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
    Slot,
    Withdrawn,
)
from controlplane.store.records import Records
from controlplane.store.rows import key_of, row, wish_row
from controlplane.store.scripts import Value

TOMBSTONE_MS: Final = 24 * 3_600_000
# How many records are read at a time: parsing them blocks the event loop for some milliseconds.
CHUNK: Final = 32
# The names of an owner's limits in the scripts, by the fields of the quota.
_MOST: Final = {one.name: f"most_{one.name}" for one in fields(Quota)}
MOST_DUE: Final = 500
# What `take_slot.lua` answers where the next start would get none.
_LAST: Final = 2
MOST_ENDS: Final = 86_400


class RedisStore:
    """See ``Store``; ``lua/head.lua`` documents the keys.

    A call that is retried after its answer was lost changes nothing twice: each write has a unique writer id, by which
    the scripts recognize it.
    """

    shared = True

    def __init__(self, calls: Calls, clock: Clock, replica: str, records: Records) -> None:
        self._calls = calls
        self._records = records
        self._clock = clock
        self._replica = replica
        self._writings = count()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        installation: str,
        clock: Clock,
        replica: str = "",
        failed: Callable[[], None] = lambda: None,
        took: Callable[[float], None] = lambda _: None,
        unreadable: Callable[[], None] = lambda: None,
        within_s: float = 0.0,
    ) -> AsyncIterator[Self]:
        """A store at ``url`` while the block runs.

        Args:
            url: ``redis://``, ``rediss://`` or ``unix://``.
            installation: part of the prefix of all keys, in a Redis that is used for other things too.
            clock: the time of day; the replicas' clocks are expected to agree within a second.
            replica: this process's name among the replicas; random when empty.
            failed: called for every call that failed.
            took: called with the time (s) of every step that was answered.
            unreadable: called once for each record that this version cannot read.
            within_s: how long to wait for a Redis that does not answer yet.

        Raises:
            Problem: upstream_timeout, Redis does not answer.
        """
        calls = Calls(url, f"{{rollbox:{installation}}}:", failed, took)
        try:
            await loaded(calls, within_s)
            yield cls(calls, clock, replica or secrets.token_hex(4), Records(unreadable))
        finally:
            await calls.close()

    @property
    def replica(self) -> str:
        """See ``Store.replica``."""
        return self._replica

    async def admit(self, sandbox: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """See ``Store.admit``."""
        lease, holder = ("", "") if fence is None else (fence.lease, fence.holder)
        asked = {**self._row(sandbox), "total": limits.total, **_most(limits.quota)}
        what, answer = await self._calls.run("admit", **asked, lease=lease, lease_holder=holder)
        if what == "fenced" and fence is not None:
            raise FencedError(fence)
        if what != "admitted":
            return self._refused(what, answer)
        # As requested; a retried call may find that the record has changed since it was admitted.
        return Admitted(sandbox if answer == "" else self._records.read(answer))

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """See ``Store.claim``."""
        wanted = wish_row(wish, self._clock.now_ms(), self._writing(), self._replica)
        what, answer = await self._calls.run("claim", **wanted, **_most(limits.quota))
        if what == "none":
            return None
        return Claimed(self._records.read(answer)) if what == "claimed" else self._refused(what, answer)

    async def warm(self, template_hash: str) -> int:
        """See ``Store.warm``. Cost: one round trip."""
        pipe = self._calls.pipe()
        pipe.zcount(f"{self._calls.prefix}warm:{template_hash}", "-inf", self._clock.now_ms())
        (ready,) = await self._calls.piped(pipe)
        return int(ready)

    async def usage(self, owner: str | None) -> Usage:
        """See ``Store.usage``."""
        flat = await self._calls.run("usage", owner=owner or "")
        return Usage(**dict(zip(flat[::2], map(int, flat[1::2]), strict=True)))

    async def recount(self) -> Sequence[Miscount]:
        """See ``Store.recount``; on the connection for long answers, so that creates do not wait behind it here."""
        flat = await self._calls.read("recount")
        found = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return [Miscount(owner or None, Usage(*counted), Usage(*there)) for owner, counted, there in found]

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.get``."""
        record, ended = await self._calls.run("get", id=sandbox_id, lost="")
        return self._records.read(record, sandbox_id) if self._kept(record, ended) else None

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.peek``."""
        record, ended = await self._calls.run("get", id=sandbox_id, lost="1")
        return self._records.read(record, sandbox_id) if self._kept(record, ended) else None

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """See ``Store.replace``."""
        return bool(await self._calls.run("replace", **self._row(sandbox), expected=expected_version))

    async def restore(self, sandbox: Sandbox) -> bool:
        """See ``Store.restore``."""
        return bool(await self._calls.run("restore", **self._row(sandbox)))

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """See ``Store.find``. Cost: one round trip, and one for every 32 records; labels are compared here.

        With the label of a group, only the ended sandboxes of this group are read, and not all of the last day.
        """
        pipe = self._calls.pipe()
        for state in State if states is None else states:
            among = f"{'in' if owner is None else f'of:{owner}'}:{state}"
            if state is State.ENDED and owner is not None and labels.get(GROUP):
                among = f"group:{owner}\n{labels[GROUP]}"
            pipe.zrange(f"{self._calls.prefix}{among}", 0, -1)
        ids = [one for of_state in await self._calls.piped(pipe) for one in of_state]
        # A sandbox may have changed its state between the two reads.
        found = [one for one in await self._read(ids) if states is None or one.state in states]
        return sorted((one for one in found if one.matches(labels)), key=lambda one: (one.created_at_ms, one.id))

    async def page(self, owner: str, states: Collection[State], offset: int, most: int) -> Page:
        """See ``Store.page``. Cost: one round trip, and one for every 32 records."""
        pipe, wanted = self._calls.pipe(), [state for state in State if state in states]
        for state in State:
            pipe.zcard(f"{self._calls.prefix}of:{owner}:{state}")
        for state in wanted:
            pipe.zrange(f"{self._calls.prefix}of:{owner}:{state}", 0, offset + most - 1, desc=True, withscores=True)
        told = await self._calls.piped(pipe)
        counts = dict(zip(State, told[: len(State)], strict=True))
        # In Redis' own order: of the same time the last id first, or a page would leave some out.
        newest = sorted(((created, one) for of_state in told[len(State) :] for one, created in of_state), reverse=True)
        found = await self._read([one for _, one in newest[offset : offset + most]])
        # A sandbox may have changed its state between the two reads.
        return Page([one for one in found if one.state in states], counts)

    async def ended_since(self, at_ms: int) -> Sequence[Sandbox]:
        """See ``Store.ended_since``; at most the last ``MOST_ENDS``."""
        pipe = self._calls.pipe()
        prefix = self._calls.prefix
        pipe.zrange(f"{prefix}tombs", "+inf", at_ms, byscore=True, desc=True, offset=0, num=MOST_ENDS)
        pipe.zrange(f"{prefix}ends", 0, -1)
        ended, ending = await self._calls.piped(pipe)
        found = [one for one in await self._read([*ended, *ending]) if one.end is not None]
        return sorted(found, key=lambda one: (one.end.at_ms if one.end else 0, one.id))

    async def by_key(self, owner: str, key: str) -> Sandbox | None:
        """See ``Store.by_key``."""
        return await self._by_key(owner, key, withdraw="0")

    async def withdraw(self, owner: str, key: str, call_id: str = "") -> Sandbox | None:
        """See ``Store.withdraw``."""
        return await self._by_key(owner, key, withdraw="1", call_id=call_id)

    async def counts(self) -> Mapping[State, int]:
        """See ``Store.counts``."""
        flat = await self._calls.run("counts", now=self._clock.now_ms())
        seen = dict(zip(flat[::2], flat[1::2], strict=True))
        return {state: int(seen.get(state, 0)) for state in State}

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
        """See ``Store.take_slot``. Cost: O(n) in all slots, unless all are taken or ``per_node`` is 0."""
        taken, *nodes = await self._calls.run(
            "take_slot",
            now=self._clock.now_ms(),
            id=sandbox_id,
            limit=limit,
            until_ms=until_ms,
            per_node=per_node,
            placement_key=placement_key,
            replica=self._replica,
            more=int(more),
        )
        if not taken:
            return Slot(taken=False, held_by="".join(nodes))
        return Slot(taken=True, avoid=tuple(sorted(nodes)), last=taken == _LAST)

    async def place_slot(
        self, sandbox_id: str, node: str, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> None:
        """See ``Store.place_slot``. Cost: as ``take_slot``."""
        await self._calls.run(
            "place_slot",
            now=self._clock.now_ms(),
            id=sandbox_id,
            node=node,
            until_ms=until_ms,
            per_node=per_node,
            placement_key=placement_key,
        )

    async def free_slot(self, sandbox_id: str) -> None:
        """See ``Store.free_slot``."""
        await self._calls.run("free_slot", now=self._clock.now_ms(), id=sandbox_id)

    async def lease(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See ``Store.lease``."""
        return bool(await self._calls.run("lease", now=self._clock.now_ms(), name=name, holder=holder, ttl=ttl_ms))

    async def note(self, name: str) -> str:
        """See ``Store.note``."""
        return str(await self._calls.run("note", now=self._clock.now_ms(), name=name))

    async def write_note(self, name: str, text: str, ttl_ms: int, *, before: str = "") -> bool:
        """See ``Store.write_note``."""
        now_ms = self._clock.now_ms()
        return bool(await self._calls.run("write_note", now=now_ms, name=name, before=before, text=text, ttl=ttl_ms))

    async def append(self, name: str, lines: Sequence[str], most: int, ttl_ms: int) -> None:
        """See ``Store.append``."""
        await self._calls.run(
            "append", now=self._clock.now_ms(), name=name, lines="\n".join(lines), most=most, ttl=ttl_ms
        )

    async def lines(self, name: str, most: int) -> Sequence[str]:
        """See ``Store.lines``."""
        return [str(line) for line in await self._calls.run("lines", now=self._clock.now_ms(), name=name, most=most)]

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        """See ``Store.due``; unreadable records are left to replicas of a version that can read them."""
        due = await self._calls.run("due", now=now_ms, unconfirmed_before=unconfirmed_before_ms, most=MOST_DUE)
        return Due(*(tuple(one for one in ids if one not in self._records) for ids in due))

    def feed(self) -> AsyncIterator[FeedMessage]:
        """See ``Store.feed``."""
        return feed.feed(self._calls, self._replica)

    async def claim_rebuild(self, ttl_ms: int) -> Rebuild:
        """See ``Store.claim_rebuild``."""
        what, content_id = await self._calls.run(
            "claim_rebuild", now=self._clock.now_ms(), holder=self._replica, ttl=ttl_ms
        )
        return Rebuild(
            {"intact": RebuildTurn.INTACT, "ours": RebuildTurn.OURS, "theirs": RebuildTurn.THEIRS}[what], content_id
        )

    async def rebuilt(self, content_id: str) -> bool:
        """See ``Store.rebuilt``."""
        return bool(await self._calls.run("rebuilt", content_id=content_id))

    def _row(self, sandbox: Sandbox) -> dict[str, Value]:
        return row(sandbox, self._clock.now_ms(), self._writing(), self._replica)

    def _writing(self) -> str:
        return f"{self._replica}.{next(self._writings)}"

    def _refused(self, what: str, answer: Any) -> Known | Withdrawn | Full:  # noqa: ANN401 - Redis' own types
        if what == "full":
            resource, used, limit = answer
            return Full(used, limit, resource)
        return Withdrawn() if what == "withdrawn" else Known(self._records.read(answer))

    async def _by_key(self, owner: str, key: str, *, withdraw: str, call_id: str = "") -> Sandbox | None:
        record = await self._calls.run(
            "by_key", now=self._clock.now_ms(), key=key_of(owner, key), withdraw=withdraw, call=call_id
        )
        return self._records.read(record) if record else None

    async def _read(self, ids: Sequence[str]) -> Iterable[Sandbox]:
        found: list[Sandbox] = []
        for at in range(0, len(ids), CHUNK):
            some = ids[at : at + CHUNK]
            flat = await self._calls.read("records", ids="\n".join(some))
            for sandbox_id, record, ended in zip(some, flat[::2], flat[1::2], strict=True):
                if self._kept(record, ended) and (one := self._records.read_or_none(record, sandbox_id)) is not None:
                    found.append(one)
        return found

    def _kept(self, record: str | None, ended: str | None) -> bool:
        """Whether there is such a record, and its tombstone is not too old."""
        return bool(record) and not (ended and int(ended) <= self._clock.now_ms() - TOMBSTONE_MS)


def _most(quota: Quota) -> dict[str, Value]:
    return {name: getattr(quota, field) for field, name in _MOST.items()}
