"""The cluster's truth into the ledger: what runs is adopted, what died gets its tombstone, the rest is removed.

After a restart, after the loss of a store, and now and then: what is on record already stays as it is.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from controlplane.cluster import Death, Health, Observed
from controlplane.errors import Code, Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.parts import Parts
from controlplane.model import UP, EndCause, Sandbox, State, load_record, read_lease_fact
from controlplane.store import UnreadableRecordError

# Health answers in milliseconds; on a machine that just came up, 16 at once are gentle.
AT_ONCE: Final = 16
# One that nobody has marked as ready is removed when it does not answer: it is asked more than once.
UNMARKED_TRIES: Final = 3
UNMARKED_PAUSE_S: Final = 1.0
# What has been ready for less may be missing from a list that the cluster has answered from memory.
SETTLED_MS: Final = 60_000
# How long a reclamation is left to the replica that began it.
RECLAIMED_WITHIN_MS: Final = 30_000
# How long a replica may take to tell a rebuilt store of its claims: three of its rounds.
UNTOLD_MS: Final = 6_000
# From when on one could be claimed that is retired after that: long after, however late the retirement is.
NOBODYS_MS: Final = 24 * 3_600_000


@dataclass(slots=True)
class Found:
    """What a look at the cluster came to.

    Attributes:
        adopted: run on, with their old tokens.
        starting: not ready, and may still get so.
        dead: have a tombstone now and wait to be taken off the cluster.
        untold: run and were claimed, and the cluster does not know by whom.
        removed: ids of which only parts were found, that cannot be read, or whose end is known.
        deaths: of sandboxes that are on record as alive.
    """

    adopted: list[Sandbox] = field(default_factory=list)
    starting: list[Sandbox] = field(default_factory=list)
    dead: list[Sandbox] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    untold: list[Sandbox] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)


class Rebuilder:
    """Reads the cluster's truth into the ledger."""

    def __init__(self, parts: Parts, store: Keeper, ledger: Ledger) -> None:
        self._cluster = parts.cluster
        self._sidecars = parts.sidecars
        self._key = parts.key
        self._clock = parts.clock
        self._store = store
        self._ledger = ledger
        self._free = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("rebuild")

    async def run(self, on_record: Sequence[Sandbox] = ()) -> Found:
        """Looks at everything once.

        Args:
            on_record: what ran according to the store, read before; those that the cluster does not have are dead.

        Raises:
            Problem: the cluster cannot be listed, or the store did not answer.
        """
        observed = await self._cluster.list()
        found, away = Found(), None
        try:
            async with asyncio.TaskGroup() as group:
                for seen in observed:
                    group.create_task(self._look(seen, found))
        except* Problem as problems:
            # One error stands for all: a caller that waits is told to come back, and not that something broke.
            away = problems.exceptions[0]
        if away is not None:
            raise away
        self._missing(on_record, {seen.sandbox_id for seen in observed}, found)
        return found

    async def _look(self, seen: Observed, found: Found) -> None:
        try:
            known = await self._store.peek(seen.sandbox_id)
        except UnreadableRecordError:
            return  # it has a record, and replicas that can read it
        if known is not None and not (known.unclaimed and seen.facts.get("claim")):
            self._known(known, seen, found)
            return
        sandbox = await self._unknown(seen)
        if known is not None:
            # The store was restarted without its claim, which the cluster has.
            if sandbox is not None and await self._ledger.adopt(replace(sandbox, version=known.version + 1)):
                found.adopted.append(sandbox)
        elif sandbox is None:
            found.removed.append(seen.sandbox_id)
        elif sandbox.state is State.STARTING and (sandbox.unclaimed or not _whole_spec(sandbox)):
            # Only who began it knows its environment, or that nobody has claimed it: he puts it on record again.
            return
        elif await self._ledger.adopt(sandbox):
            kinds = {**dict.fromkeys(UP, found.adopted), State.STARTING: found.starting, State.ENDING: found.dead}
            kinds[sandbox.state].append(sandbox)

    def _known(self, known: Sandbox, seen: Observed, found: Found) -> None:
        if known.end is not None:
            began_ms = self._clock.now_ms() - known.end.at_ms
            if known.state is State.ENDED or began_ms > RECLAIMED_WITHIN_MS:
                found.removed.append(seen.sandbox_id)
        elif seen.death is not None:
            found.deaths.append(seen.death)
        elif known.claimed_at_ms is not None and not seen.facts.get("claim"):
            found.untold.append(known)

    def _missing(self, on_record: Sequence[Sandbox], seen: set[str], found: Found) -> None:
        before_ms = self._clock.now_ms() - SETTLED_MS
        for sandbox in on_record:
            if sandbox.id not in seen and (sandbox.ready_at_ms or 0) < before_ms:
                found.deaths.append(Death(sandbox.id, "sandbox_lost", "nothing of it is on the cluster any more"))

    async def _unknown(self, seen: Observed) -> Sandbox | None:
        """What to put on record; None when it is to be removed: its creator was never told of it, and repeats."""
        # Of a claimed one the later text: whose it is now.
        record = load_record(seen.facts.get("claim") or seen.record)
        if record is None or record.id != seen.sandbox_id:
            return None
        ready_at_ms = _whole(seen.facts.get("ready_at_ms", ""))
        if not ready_at_ms:
            return await self._unmarked(record, seen) if self._cluster.annotates_behind else None
        sandbox = replace(
            _leased(record, seen),
            state=State.WARM if record.unclaimed else State.RUNNING,
            ready_at_ms=ready_at_ms,
            expires_at_ms=max(record.expires_at_ms, _whole(seen.facts.get("expires_at_ms", ""))),
            address=seen.facts.get("address") or seen.address,
            kernel=seen.facts.get("kernel", ""),
        ).with_ports_fact(seen.facts.get("public_ports", ""))
        if seen.death is not None:
            return self._dead(sandbox, seen.death.cause, seen.death.detail)
        sandbox = self._unclaimable(sandbox)
        if sandbox.expires_at_ms <= self._clock.now_ms():
            return self._dead(sandbox, "ttl_expired", "it expired while the control plane was down")
        return await self._prove(sandbox)

    def _unclaimable(self, sandbox: Sandbox) -> Sandbox:
        """Of one that nobody claimed as far as the cluster was told: as nobody gets it, and it is retired soon."""
        if not (sandbox.unclaimed and self._cluster.annotates_behind):
            return sandbox
        # It may be somebody's. The replica that knows says so before it expires; a pool has another one in no time.
        now_ms = self._clock.now_ms()
        return replace(sandbox, expires_at_ms=now_ms + UNTOLD_MS, ready_at_ms=now_ms + NOBODYS_MS)

    async def _unmarked(self, record: Sandbox, seen: Observed) -> Sandbox | None:
        if seen.death is not None:
            return None
        if seen.address:
            # Before its deadline it may not listen yet; after it, no answer would be its end.
            health = await self._health(record, seen.address, self._clock.now_ms() >= record.start_by_ms)
            if health is not None and health.acknowledged:
                up = State.WARM if record.unclaimed else State.RUNNING
                ready_at_ms = self._clock.now_ms()
                sandbox = replace(record, state=up, ready_at_ms=ready_at_ms, address=seen.address, kernel=health.kernel)
                return self._unclaimable(sandbox)
        return record if self._clock.now_ms() < record.start_by_ms else None

    async def _health(self, record: Sandbox, address: str, again: bool) -> Health | None:
        for left in range(UNMARKED_TRIES if again else 1, 0, -1):
            try:
                async with self._free:
                    return await self._sidecars.health(address, self._key.token(record).text)
            except Problem:
                if left > 1:
                    await asyncio.sleep(UNMARKED_PAUSE_S)
        return None

    async def _prove(self, sandbox: Sandbox) -> Sandbox:
        if self._cluster.annotates_behind:
            # A cluster that is not this machine: one call that fails may be the network, here or there. It watches its
            # pods itself, and the prober asks more than once and knows when it is we who are cut off.
            return sandbox
        try:
            async with self._free:
                await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem as problem:
            self._log.warning("not adopted", sandbox_id=sandbox.id, code=problem.code, detail=problem.detail)
            return self._dead(sandbox, "sandbox_lost", f"it gave no proof of life after a restart: {problem.detail}")
        return sandbox

    def _dead(self, sandbox: Sandbox, cause: Code, detail: str) -> Sandbox:
        end = EndCause(cause, detail, self._clock.now_ms(), "control plane")
        return replace(sandbox, state=State.ENDING, end=end)


def _whole_spec(sandbox: Sandbox) -> bool:
    """Whether the cluster's copy of the spec is all of it: the environment stays out of it."""
    # On record is the installation's idle timeout where none was asked for.
    asked = sandbox.spec.model_copy(update={"idle_timeout_ms": None})
    return sandbox.fingerprint in (sandbox.spec.fingerprint(), asked.fingerprint())


def _leased(record: Sandbox, seen: Observed) -> Sandbox:
    """The record with the lease that it was given to since, or taken off."""
    if "lease" not in seen.facts:
        return record
    lease = read_lease_fact(seen.facts["lease"])
    return replace(record, spec=record.spec.model_copy(update={"lease": lease}))


def _whole(text: str) -> int:
    """A positive number as it was annotated; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
