"""After a restart: what still runs on the cluster is adopted, what died gets its tombstone, the rest is removed."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Cluster, Observed, Sidecars
from controlplane.errors import Code, Problem
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import EndCause, Sandbox, State, load_record

# Health answers in milliseconds; on a machine that just came up, 16 at once are gentle.
AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Found:
    """What a rebuild came to.

    Attributes:
        adopted: run on, with their old tokens.
        dead: have a tombstone now and wait to be taken off the cluster.
        removed: ids of which only parts were found, that cannot be read, or whose end is known.
    """

    adopted: tuple[Sandbox, ...]
    dead: tuple[Sandbox, ...]
    removed: tuple[str, ...]


class Rebuilder:
    """Reads the cluster's truth into the ledger."""

    def __init__(self, cluster: Cluster, sidecars: Sidecars, ledger: Ledger, key: SigningKey, clock: Clock) -> None:
        self._cluster = cluster
        self._sidecars = sidecars
        self._ledger = ledger
        self._key = key
        self._clock = clock
        self._free = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("rebuild")

    async def run(self) -> Found:
        """Looks at everything once; call it before the first create.

        Raises:
            Problem: the cluster cannot be listed.
        """
        observed = await self._cluster.list()
        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(self._look(one)) for one in observed]
        records = [look.result() for look in looks]
        for sandbox in records:
            if sandbox is not None:
                await self._ledger.adopt(sandbox)
        return Found(
            adopted=tuple(one for one in records if one is not None and one.state is State.RUNNING),
            dead=tuple(one for one in records if one is not None and one.state is State.ENDING),
            removed=tuple(seen.sandbox_id for seen, one in zip(observed, records, strict=True) if one is None),
        )

    async def _look(self, seen: Observed) -> Sandbox | None:
        if await self._ledger.has_ended(seen.sandbox_id):
            return None  # its end was on its way when the control plane stopped
        record = load_record(seen.record)
        ready_at_ms = seen.facts.get("ready_at_ms", "")
        if record is None or record.id != seen.sandbox_id or not _whole(ready_at_ms):
            return None  # never answered to its creator, who repeats the create
        sandbox = replace(
            record,
            state=State.RUNNING,
            ready_at_ms=_whole(ready_at_ms),
            expires_at_ms=max(record.expires_at_ms, _whole(seen.facts.get("expires_at_ms", ""))),
            address=seen.facts.get("address") or seen.address,
            kernel=seen.facts.get("kernel", ""),
        )
        if seen.death is not None:
            return self._dead(sandbox, seen.death.cause, seen.death.detail)
        if sandbox.expires_at_ms <= self._clock.now_ms():
            return self._dead(sandbox, "ttl_expired", "it expired while the control plane was down")
        return await self._prove(sandbox)

    async def _prove(self, sandbox: Sandbox) -> Sandbox:
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


def _whole(text: str) -> int:
    """A positive number as it was annotated; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
