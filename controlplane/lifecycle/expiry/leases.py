"""Ends the sandboxes of clients that are gone: those whose lease was not renewed in time.

The store decides, for all replicas, whether a lease has expired; ``gateway_reports`` decides whether its client could
have renewed it; and a sandbox that was used within the lease's ttl is not ended, even if renewals are missing.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.expiry.activity import ASKED_AT_ONCE, Activity, began_ms
from controlplane.lifecycle.expiry.idle import LOOK_AGAIN_MS, SOONEST_MS
from controlplane.lifecycle.expiry.timers import Timers
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Lease, Sandbox, State

_OWNER: Final = "its owner"
# The lock on a lease while its sandboxes are ended: no client can renew it; the lock of a replica that dies expires.
HELD_MS: Final = 60_000
# How many expired leases are handled at a time; for each, ``ASKED_AT_ONCE`` sidecars are called at once.
JUDGED_AT_ONCE: Final = 4


@dataclass(slots=True)
class _Held:
    """One lease as this replica knows it, and its running sandboxes."""

    name: str
    ttl_ms: int
    renewed_ms: int
    ids: set[str] = field(default_factory=set)


class Leases:
    """The leases of all running sandboxes.

    Args:
        replica: this process's name.
    """

    def __init__(self, clock: Clock, store: RecoveringStore, ledger: Ledger, activity: Activity, replica: str) -> None:
        self._clock = clock
        self._store = store
        self._ledger = ledger
        self._activity = activity
        self._judge = f"judge {replica}"
        self._timers = Timers(clock)
        self._leases: dict[str, _Held] = {}
        self._of: dict[str, str] = {}
        self._log = structlog.get_logger("leases")

    def watch(self, sandbox: Sandbox) -> None:
        """Notes which lease a running sandbox has; giving a sandbox to a lease counts as a renewal."""
        lease = sandbox.spec.lease if sandbox.state is State.RUNNING else None
        key = "" if lease is None else _key(sandbox.owner, lease.name)
        if self._of.get(sandbox.id, "") == key:
            return
        self.forget(sandbox.id)
        if lease is not None:
            held = self._leases.setdefault(key, _Held(lease.name, lease.ttl_ms, 0))
            held.ids.add(sandbox.id)
            self._of[sandbox.id] = key
            self._renewed(key, held, lease.ttl_ms)

    def forget(self, sandbox_id: str) -> None:
        """Takes a sandbox off its lease: its end has begun, or the lease was removed; unknown ids are ignored."""
        key = self._of.pop(sandbox_id, "")
        held = self._leases.get(key)
        if held is not None:
            held.ids.discard(sandbox_id)
            if not held.ids:
                del self._leases[key]
                self._timers.forget(key)

    async def renew(self, owner: str, lease: Lease) -> int:
        """Renews a lease; returns how many running sandboxes it has.

        A lease without running sandboxes is not stored: the next sandbox that is given to it renews it.

        Raises:
            Problem: conflict, it has expired and its sandboxes are being ended; the store's.
        """
        key = _key(owner, lease.name)
        held = self._leases.get(key)
        if held is None:
            return 0
        if not await self._store.lease(key, _OWNER, lease.ttl_ms):
            detail = f"lease {lease.name} was not renewed in time: the sandboxes that it had are being ended"
            raise Problem("conflict", detail, lease=lease.name)
        self._renewed(key, held, lease.ttl_ms)
        return len(held.ids)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._timers.run(self._check, JUDGED_AT_ONCE)

    def _renewed(self, key: str, held: _Held, ttl_ms: int) -> None:
        held.ttl_ms, held.renewed_ms = ttl_ms, self._clock.now_ms()
        self._timers.watch(key, held.renewed_ms + ttl_ms)

    async def _check(self, key: str) -> None:
        held = self._leases.get(key)
        if held is None:
            return
        try:
            again_ms = await self._judged(key, held)
        except Problem:
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        except Exception:
            # An unexpected failure for one lease must not end the loop, and the control plane with it.
            self._log.exception("lease not checked, retrying", lease=held.name)
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        if self._leases.get(key) is held:
            self._timers.watch(key, max(again_ms, self._clock.now_ms() + SOONEST_MS))

    async def _judged(self, key: str, held: _Held) -> int:
        """Checks a lease, and ends its sandboxes if it has expired; when to check again (Unix ms)."""
        judged_ms = self._activity.gateway_reports.judges_from(held.renewed_ms, held.ttl_ms)
        if judged_ms is None or judged_ms > self._clock.now_ms():
            return judged_ms or self._clock.now_ms() + LOOK_AGAIN_MS
        # Atomic among all replicas and renewals: either this replica holds the lock now and the lease has expired, or
        # a client has renewed it at another replica.
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
        # Many sidecars were called before, and slow ones take time: the lock may have expired.
        if not await self._store.lease(key, self._judge, HELD_MS):
            return
        words = (
            f"its client has gone: lease {held.name} was not renewed for {held.ttl_ms / 1000:g} s, and nothing "
            f"happened in it for {quiet_ms / 1000:.0f} s"
        )
        lapsed = Problem("lease_expired", words)
        # Only if the record is still the one that was read: a detach that was answered must hold.
        await self._ledger.end(sandbox.id, lapsed, f"lease {held.name}", known=sandbox, once=True)


def _lease(sandbox: Sandbox | None) -> Lease | None:
    return None if sandbox is None or sandbox.state is not State.RUNNING else sandbox.spec.lease


def _key(owner: str, name: str) -> str:
    return f"owner:{owner}\n{name}"
