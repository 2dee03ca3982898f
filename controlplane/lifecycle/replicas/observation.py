"""Reads what the cluster has into the ledger: running sandboxes are adopted, dead ones get their tombstones.

This is done after a restart, after a loss of the store, and periodically; existing records stay as they are.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from controlplane.cluster import Death, Health, Observed
from controlplane.errors import Code, Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import UP, EndCause, Sandbox, State, load_record, read_lease_fact
from controlplane.store import UnreadableRecordError

# A health call takes milliseconds; 16 at a time are a light load for a machine that has just started.
AT_ONCE: Final = 16
# On a cluster each has a node to itself, and those of a node that does not answer must not hold up a rebuild.
ASKED_AT_ONCE: Final = 64
ASKED_WITHIN_S: Final = 2.0
# A pool's sandbox that is not annotated as ready is removed when it does not answer, so it is probed more than once.
UNMARKED_TRIES: Final = 3
UNMARKED_PAUSE_S: Final = 1.0
# A sandbox that has been ready for less may be missing from a list that the cluster answers from a cache.
SETTLED_MS: Final = 60_000
# How long a reclamation is left to the replica that began it.
RECLAIMED_WITHIN_MS: Final = 30_000
# How long a replica may take to put its claims into a rebuilt store: three of its rounds.
UNTOLD_MS: Final = 6_000
# How far in the future ``ready_at_ms`` of an adopted unclaimed sandbox is: it must not be claimed before it is retired,
# however late that happens.
NOBODYS_MS: Final = 24 * 3_600_000


@dataclass(slots=True)
class Found:
    """What one comparison with the cluster has found.

    Attributes:
        adopted: put on record as running; their old tokens stay valid.
        starting: put on record; not ready yet, and may still become so.
        dead: put on record with their tombstones; they have to be taken off the cluster.
        unannotated: claimed sandboxes whose owner is not annotated on the cluster yet.
        removed: ids to take off the cluster: incomplete, unreadable, or with an end on record.
        deaths: deaths of sandboxes that are on record as alive.
    """

    adopted: list[Sandbox] = field(default_factory=list)
    starting: list[Sandbox] = field(default_factory=list)
    dead: list[Sandbox] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unannotated: list[Sandbox] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)


class Observer:
    """Reads what the cluster has into the ledger.

    Args:
        adopt_egress: takes the network policies that it has with sandboxes; None: there are none.
    """

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        adopt_egress: Callable[[str], None] | None = None,
    ) -> None:
        self._adopt_egress = adopt_egress
        self._cluster = deps.cluster
        self._sidecars = deps.sidecars
        self._key = deps.key
        self._clock = deps.clock
        self._store = store
        self._ledger = ledger
        self._free = asyncio.Semaphore(ASKED_AT_ONCE if deps.cluster.annotates_behind else AT_ONCE)
        self._log = structlog.get_logger("observation")

    async def run(self, on_record: Sequence[Sandbox] = ()) -> Found:
        """Reads the whole cluster once.

        Args:
            on_record: the running sandboxes by the store, read before; those that the cluster does not have are dead.

        Raises:
            Problem: the cluster cannot be listed, or the store did not answer.
        """
        observed = await self._cluster.list()
        found, away = Found(), None
        try:
            async with asyncio.TaskGroup() as group:
                for seen in observed:
                    group.create_task(self._check(seen, found))
        except* Problem as problems:
            # One for all: a caller that waits must get the problem, which may be retried, and not an exception group.
            away = problems.exceptions[0]
        if away is not None:
            raise away
        self._missing(on_record, {seen.sandbox_id for seen in observed}, found)
        return found

    async def _check(self, seen: Observed, found: Found) -> None:
        try:
            known = await self._store.peek(seen.sandbox_id)
        except UnreadableRecordError:
            return  # it has a record, and replicas that can read it
        if known is not None and not (known.unclaimed and seen.facts.get("claim")):
            self._known(known, seen, found)
            return
        sandbox = await self._unknown(seen)
        if known is not None:
            # The store was restarted and has lost its claim; the cluster has it.
            if sandbox is not None and await self._ledger.adopt(replace(sandbox, version=known.version + 1)):
                found.adopted.append(sandbox)
        elif sandbox is None:
            found.removed.append(seen.sandbox_id)
        elif sandbox.state is State.STARTING and sandbox.unclaimed:
            # Only the replica that began the start knows that it is not claimed. That replica puts it on record again.
            return
        elif await self._ledger.adopt(sandbox):
            kinds = {**dict.fromkeys(UP, found.adopted), State.STARTING: found.starting, State.ENDING: found.dead}
            kinds[sandbox.state].append(sandbox)

    def _known(self, known: Sandbox, seen: Observed, found: Found) -> None:
        if known.end is not None:
            self._ledger.publish(known)
            began_ms = self._clock.now_ms() - known.end.at_ms
            if known.state is State.ENDED or began_ms > RECLAIMED_WITHIN_MS:
                found.removed.append(seen.sandbox_id)
        elif seen.death is not None:
            found.deaths.append(seen.death)
        elif self._cluster.annotates_behind and (elsewhere := _elsewhere(known, seen)) is not None:
            found.deaths.append(elsewhere)
        elif known.claimed_at_ms is not None and not seen.facts.get("claim"):
            found.unannotated.append(known)

    def _missing(self, on_record: Sequence[Sandbox], seen: set[str], found: Found) -> None:
        before_ms = self._clock.now_ms() - SETTLED_MS
        for sandbox in on_record:
            if sandbox.id not in seen and (sandbox.ready_at_ms or 0) < before_ms:
                found.deaths.append(Death(sandbox.id, "sandbox_lost", "nothing of it is there any more"))

    async def _unknown(self, seen: Observed) -> Sandbox | None:
        """The record to store; None: it is to be removed, since its create was never answered and is retried."""
        # If it was claimed, the record in that annotation is the newer one and has the owner.
        record = load_record(seen.facts.get("claim") or seen.record)
        if record is None or record.id != seen.sandbox_id:
            return None
        ready_at_ms = _whole(seen.facts.get("ready_at_ms", ""))
        if not ready_at_ms and not self._cluster.annotates_behind:
            return None
        sandbox = self._with_facts(record, seen)
        if not ready_at_ms:
            return await self._unmarked(sandbox, seen)
        address, kernel = seen.facts.get("address") or seen.address, seen.facts.get("kernel", "")
        return await self._outlived(_up(sandbox, ready_at_ms, address, kernel), seen)

    def _with_facts(self, record: Sandbox, seen: Observed) -> Sandbox:
        """The record with what the cluster was told since: lease, expiry, public ports, network policy."""
        expires_at_ms = max(record.expires_at_ms, _whole(seen.facts.get("expires_at_ms", "")))
        sandbox = replace(_leased(record, seen), expires_at_ms=expires_at_ms)
        sandbox = sandbox.with_ports_fact(seen.facts.get("public_ports", ""))
        if self._adopt_egress is not None and (fact := seen.facts.get("egress", "")):
            self._adopt_egress(fact)
            sandbox = sandbox.with_egress_fact(fact)
        return sandbox

    async def _outlived(self, sandbox: Sandbox, seen: Observed) -> Sandbox:
        """The record of one that was ready: as it is now, or with its end."""
        if seen.death is not None:
            return self._dead(sandbox, seen.death.cause, seen.death.detail)
        sandbox = self._unclaimable(sandbox)
        if sandbox.expires_at_ms <= self._clock.now_ms():
            return self._dead(sandbox, "ttl_expired", "it expired while the control plane was down")
        return await self._prove(sandbox)

    def _unclaimable(self, sandbox: Sandbox) -> Sandbox:
        """Makes a sandbox without a claim annotation impossible to claim, and expire soon."""
        if not (sandbox.unclaimed and self._cluster.annotates_behind):
            return sandbox
        # It may have been claimed just before. A replica that knows the claim stores it before this expiry; else the
        # sandbox is retired, and its pool starts another one.
        now_ms = self._clock.now_ms()
        return replace(sandbox, expires_at_ms=now_ms + UNTOLD_MS, ready_at_ms=now_ms + NOBODYS_MS)

    async def _unmarked(self, record: Sandbox, seen: Observed) -> Sandbox | None:
        """One that nothing says of whether it was ready: it is asked.

        After its start deadline one that somebody has created was ready, or its end would be on the cluster: it goes on
        record whether it answers now or not, and what watches it afterwards judges. A pool's that does not answer is
        removed, since somebody may have claimed it.
        """
        overdue = self._clock.now_ms() >= record.start_by_ms
        if seen.death is not None:
            return await self._outlived(record, seen) if overdue and not record.unclaimed else None
        if not seen.address:
            return None if overdue else record
        # Before its start deadline it may not listen yet.
        health = await self._health(record, seen.address, UNMARKED_TRIES if overdue and record.unclaimed else 1)
        if health is not None and health.acknowledged:
            return await self._outlived(_up(record, self._clock.now_ms(), seen.address, health.kernel), seen)
        if not overdue:
            return record
        if health is None and not record.unclaimed:
            return await self._outlived(_up(record, self._clock.now_ms(), seen.address, ""), seen)
        return None

    async def _health(self, record: Sandbox, address: str, tries: int) -> Health | None:
        for left in range(tries, 0, -1):
            try:
                async with self._free, asyncio.timeout(ASKED_WITHIN_S):
                    return await self._sidecars.health(address, self._key.token(record).text)
            except (Problem, TimeoutError):
                if left > 1:
                    await asyncio.sleep(UNMARKED_PAUSE_S)
        return None

    async def _prove(self, sandbox: Sandbox) -> Sandbox:
        if self._cluster.annotates_behind:
            # The cluster is not this machine, so a failed call may mean a network failure, here or there. The cluster
            # watches its pods itself, and the prober probes repeatedly and notices if the control plane is cut off.
            return sandbox
        try:
            async with self._free:
                await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem as problem:
            self._log.warning(
                "sandbox does not answer after a restart, it is ended",
                sandbox_id=sandbox.id,
                code=problem.code,
                detail=problem.detail,
            )
            return self._dead(sandbox, "sandbox_lost", f"it gave no proof of life after a restart: {problem.detail}")
        return sandbox

    def _dead(self, sandbox: Sandbox, cause: Code, detail: str) -> Sandbox:
        end = EndCause(cause, detail, self._clock.now_ms(), "control plane")
        return replace(sandbox, state=State.ENDING, end=end)


def _up(record: Sandbox, ready_at_ms: int, address: str | None, kernel: str) -> Sandbox:
    up = State.WARM if record.unclaimed else State.RUNNING
    return replace(record, state=up, ready_at_ms=ready_at_ms, address=address, kernel=kernel)


def _elsewhere(known: Sandbox, seen: Observed) -> Death | None:
    """The end of a sandbox that is not where its record says: the replica that took its push may have died since."""
    if not (known.address and seen.address) or _bare(known.address) == _bare(seen.address):
        return None
    detail = f"its readiness push was forged: it named {known.address}, and its pod has {seen.address}"
    return Death(known.id, "sandbox_lost", detail)


def _bare(address: str) -> str:
    """Without the brackets that an IPv6 address may have."""
    return address.replace("[", "").replace("]", "")


def _leased(record: Sandbox, seen: Observed) -> Sandbox:
    """The record with the lease from its annotation, which is newer, or without one."""
    if "lease" not in seen.facts:
        return record
    lease = read_lease_fact(seen.facts["lease"])
    return replace(record, spec=record.spec.model_copy(update={"lease": lease}))


def _whole(text: str) -> int:
    """An annotated positive number; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
