"""Ending what belongs to clients that have gone: a lease that nobody renews takes its sandboxes along.

Whether it has lapsed is the store's word, for all replicas; that its owner could have renewed it is the vigil's; and a
sandbox that was used within the time has an owner, whatever became of his renewals.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.activity import ASKED_AT_ONCE, Activity, began_ms
from controlplane.lifecycle.idle import LOOK_AGAIN_MS, SOONEST_MS, End
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.reaper import Reaper
from controlplane.model import Lease, Sandbox, State

_OWNER: Final = "its owner"
# For as long as its sandboxes are ended nobody can renew it; a replica that dies meanwhile holds it no longer.
HELD_MS: Final = 60_000
# Leases that are judged at the same time; each asks as many sidecars.
JUDGED_AT_ONCE: Final = 4


@dataclass(slots=True)
class _Held:
    """One lease as this replica knows it."""

    name: str
    ttl_ms: int
    renewed_ms: int
    ids: set[str] = field(default_factory=set)


class Leases:
    """The leases of all running sandboxes.

    Args:
        replica: this process's name.
        end: ends a sandbox, if nothing was stored about it since it was read: a detach that was answered holds.
    """

    def __init__(self, clock: Clock, store: Keeper, activity: Activity, replica: str, end: End) -> None:
        self._clock = clock
        self._store = store
        self._activity = activity
        self._judge = f"judge {replica}"
        self._end = end
        self._looks = Reaper(clock)
        self._leases: dict[str, _Held] = {}
        self._of: dict[str, str] = {}
        self._log = structlog.get_logger("leases")

    def watch(self, sandbox: Sandbox) -> None:
        """Takes in which lease a running sandbox has; that it was given to one counts as a word of the owner."""
        lease = sandbox.spec.lease if sandbox.state is State.RUNNING else None
        key = "" if lease is None else _key(sandbox.owner, lease.name)
        if self._of.get(sandbox.id, "") == key:
            return
        self.forget(sandbox.id)
        if lease is not None:
            held = self._leases.setdefault(key, _Held(lease.name, lease.ttl_ms, 0))
            held.ids.add(sandbox.id)
            self._of[sandbox.id] = key
            self._heard(key, held, lease.ttl_ms)

    def forget(self, sandbox_id: str) -> None:
        """Its end has begun, or it has no lease any more; unknown ids are fine."""
        key = self._of.pop(sandbox_id, "")
        held = self._leases.get(key)
        if held is not None:
            held.ids.discard(sandbox_id)
            if not held.ids:
                del self._leases[key]
                self._looks.forget(key)

    async def renew(self, owner: str, lease: Lease) -> int:
        """Says that the owner of a lease is still there; how many running sandboxes it has.

        One that has none is not kept: the next sandbox that is given to it counts as a word, too.

        Raises:
            Problem: conflict, it has lapsed and its sandboxes are being ended; the store's.
        """
        key = _key(owner, lease.name)
        held = self._leases.get(key)
        if held is None:
            return 0
        if not await self._store.lease(key, _OWNER, lease.ttl_ms):
            detail = f"lease {lease.name} was not renewed in time: the sandboxes that it had are being ended"
            raise Problem("conflict", detail, lease=lease.name)
        self._heard(key, held, lease.ttl_ms)
        return len(held.ids)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._looks.run(self._look, JUDGED_AT_ONCE)

    def _heard(self, key: str, held: _Held, ttl_ms: int) -> None:
        held.ttl_ms, held.renewed_ms = ttl_ms, self._clock.now_ms()
        self._looks.watch(key, held.renewed_ms + ttl_ms)

    async def _look(self, key: str) -> None:
        held = self._leases.get(key)
        if held is None:
            return
        try:
            again_ms = await self._judged(key, held)
        except Problem:
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        except Exception:
            # One lease that cannot be judged must not take the control plane with it.
            self._log.exception("not judged", lease=held.name)
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        if self._leases.get(key) is held:
            self._looks.watch(key, max(again_ms, self._clock.now_ms() + SOONEST_MS))

    async def _judged(self, key: str, held: _Held) -> int:
        """When to look again, if any sandbox of it is left then."""
        judged_ms = self._activity.vigil.judges_from(held.renewed_ms, held.ttl_ms)
        if judged_ms is None or judged_ms > self._clock.now_ms():
            return judged_ms or self._clock.now_ms() + LOOK_AGAIN_MS
        # Atomic among all replicas and renewals: from now on it has lapsed, or somebody has renewed it elsewhere.
        if await self._store.lease(key, self._judge, HELD_MS):
            try:
                await self._end_all(key, held)
            finally:
                await self._store.lease(key, self._judge, 0)
        return self._clock.now_ms() + held.ttl_ms // 2

    async def _end_all(self, key: str, held: _Held) -> None:
        free = asyncio.Semaphore(ASKED_AT_ONCE)

        async def one(sandbox_id: str) -> None:
            async with free:
                await self._end_one(sandbox_id, key, held)

        for failure in await asyncio.gather(*map(one, [*held.ids]), return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure

    async def _end_one(self, sandbox_id: str, key: str, held: _Held) -> None:
        sandbox = await self._store.get(sandbox_id)
        lease = _lease(sandbox)
        if sandbox is None or lease is None or lease.name != held.name:
            self.forget(sandbox_id)
            return
        quiet_ms = await self._activity.quiet_ms(sandbox, commands=False)
        if quiet_ms is None or min(quiet_ms, self._clock.now_ms() - began_ms(sandbox)) < held.ttl_ms:
            return
        # Others were asked before it, and its sidecar took its time: the hold may have lapsed.
        if not await self._store.lease(key, self._judge, HELD_MS):
            return
        words = (
            f"its client has gone: lease {held.name} was not renewed for {held.ttl_ms / 1000:g} s, and nothing "
            f"happened in it for {quiet_ms / 1000:.0f} s"
        )
        await self._end(sandbox, Problem("lease_expired", words), f"lease {held.name}")


def _lease(sandbox: Sandbox | None) -> Lease | None:
    return None if sandbox is None or sandbox.state is not State.RUNNING else sandbox.spec.lease


def _key(owner: str, name: str) -> str:
    return f"owner:{owner}\n{name}"
