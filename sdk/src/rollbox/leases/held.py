"""The leases of one client: renewed by the process beside this one, or from the event loop when that does not do it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import ref

from rollbox._problem import SandboxError
from rollbox.errors import Unsupported
from rollbox.leases import renewer

if TYPE_CHECKING:
    from rollbox.gateway import Gateway

_log = logging.getLogger("rollbox")
# A word that is lost three times in a row is early enough the fourth time.
_WORDS_PER_TTL = 4
# Of the time between two words: the process beside this one has missed its turn.
_MISSED = 1.5


class Leases:
    """The leases of one client, one for each time that sandboxes are to outlive it; each has one task.

    The task only looks whether the lease is renewed, and renews it itself when it is not.
    """

    def __init__(self, gateway: Gateway) -> None:
        # Not held: a client that nobody closed must fall silent when nobody has it any more.
        self._gateway = ref(gateway)
        self._client = uuid4().hex
        self._renewals: dict[int, asyncio.Task[None]] = {}

    def named(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a create with the name of this client's lease, and begin to renew that; others as is."""
        lease = body.get("lease")
        return dict(body) if lease is None else {**body, "lease": self.of(lease["ttl_ms"])}

    def of(self, ttl_ms: int) -> dict[str, Any]:
        """Return the lease of this client that holds for so long, and begin to renew it."""
        name = f"{self._client}-{ttl_ms}"
        if ttl_ms not in self._renewals:
            renewing = _renew(self._gateway, name, ttl_ms)
            self._renewals[ttl_ms] = asyncio.get_running_loop().create_task(renewing, name=f"renew lease {name}")
        return {"name": name, "ttl_ms": ttl_ms}

    async def aclose(self) -> None:
        """Fall silent. Idempotent."""
        renewals, self._renewals = [*self._renewals.values()], {}
        for renewal in renewals:
            renewal.cancel()
        if renewals:
            await asyncio.wait(renewals)


async def _renew(gateway: ref[Gateway], name: str, ttl_ms: int) -> None:
    every_s = ttl_ms / 1000 / _WORDS_PER_TTL
    beside = renewer.shared()
    # The create itself was the first word.
    said_at, helped = time.monotonic(), True
    try:
        while (held := gateway()) is not None:
            silent_s = time.monotonic() - max(said_at, beside.renewed_at(name))
            if not helped or silent_s >= every_s * _MISSED:
                said_at = time.monotonic()
                await _say(held, name, ttl_ms)
            helped = _hold(beside, held, name, ttl_ms, every_s, warn=helped)
            del held
            await asyncio.sleep(every_s)
    finally:
        beside.drop(name)


async def _say(gateway: Gateway, name: str, ttl_ms: int) -> None:
    try:
        await gateway.owned("POST", "leases", name, body={"ttl_ms": ttl_ms})
    except SandboxError as error:
        _log.warning("lease %s not renewed, it will be tried again: %s", name, error.detail)


def _hold(beside: renewer.Renewer, gateway: Gateway, name: str, ttl_ms: int, every_s: float, *, warn: bool) -> bool:
    """Have the process beside this one renew it, with the client's settings of now; whether it does."""
    try:
        beside.hold(name, renewer.order(gateway.settings, name, ttl_ms, every_s))
    except Unsupported as error:
        if warn:
            _log.warning("lease %s: %s", name, error)
        return False
    return True
