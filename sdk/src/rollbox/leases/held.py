"""The leases of one client: renewed by the renewal process, or from the event loop when that process does not."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import uuid4
from weakref import ref

from rollbox._problem import SandboxError
from rollbox.errors import Unsupported
from rollbox.leases import renewer
from rollbox.settings import Settings

_log = logging.getLogger("rollbox")
# Renewals in the ttl of a lease: when three in a row are lost, the fourth is still in time.
_RENEWALS_PER_TTL = 4
# After so many renewal intervals without a renewal, the event loop takes over from the renewal process.
_MISSED = 1.5


class LeaseService(Protocol):
    """Where leases are renewed; the members are those of `Gateway`."""

    settings: Settings

    async def call_api(self, method: str, *parts: str, body: Mapping[str, Any] | None) -> Any:  # noqa: ANN401
        """Call a route of the owner."""


class Leases:
    """The leases of one client, one for each ttl (how long sandboxes outlive it); each has one asyncio task.

    The task checks whether the renewal process renews the lease, and renews it itself when it does not.
    """

    def __init__(self, gateway: LeaseService) -> None:
        # A weak reference: renewals stop when a client that was never closed is garbage-collected.
        self._gateway = ref(gateway)
        self._client = uuid4().hex
        self._renewals: dict[int, asyncio.Task[None]] = {}

    def with_lease(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a create's body with the name of this client's lease, and begin to renew that; else the body as is."""
        lease = body.get("lease")
        return dict(body) if lease is None else {**body, "lease": self.of(lease["ttl_ms"])}

    def of(self, ttl_ms: int) -> dict[str, Any]:
        """Return this client's lease with this ttl, and begin to renew it."""
        name = f"{self._client}-{ttl_ms}"
        if ttl_ms not in self._renewals:
            renewing, loop = _renew(self._gateway, name, ttl_ms), asyncio.get_running_loop()
            # Its own context: renewals belong to no span or run of the first create.
            context = contextvars.Context()
            self._renewals[ttl_ms] = loop.create_task(renewing, name=f"renew lease {name}", context=context)
        return {"name": name, "ttl_ms": ttl_ms}

    async def aclose(self) -> None:
        """Stop renewing; the leases expire. Idempotent."""
        renewals, self._renewals = [*self._renewals.values()], {}
        for renewal in renewals:
            renewal.cancel()
        if renewals:
            await asyncio.wait(renewals)


async def _renew(gateway: ref[LeaseService], name: str, ttl_ms: int) -> None:
    every_s = ttl_ms / 1000 / _RENEWALS_PER_TTL
    process = renewer.shared()
    # The create itself counts as the first renewal.
    renewed_at, registered = time.monotonic(), True
    try:
        while (held := gateway()) is not None:
            since_renewal_s = time.monotonic() - max(renewed_at, process.renewed_at(name))
            if not registered or since_renewal_s >= every_s * _MISSED:
                renewed_at = time.monotonic()
                await _renew_once(held, name, ttl_ms)
            registered = _register(process, held, name, ttl_ms, every_s, warn=registered)
            del held
            await asyncio.sleep(every_s)
    finally:
        process.unregister(name)


async def _renew_once(gateway: LeaseService, name: str, ttl_ms: int) -> None:
    try:
        await gateway.call_api("POST", "leases", name, body={"ttl_ms": ttl_ms})
    except SandboxError as error:
        _log.warning("lease %s could not be renewed from the event loop, retrying: %s", name, error.detail)


def _register(
    process: renewer.Renewer, gateway: LeaseService, name: str, ttl_ms: int, every_s: float, *, warn: bool
) -> bool:
    """Register the lease with the renewal process, with the client's current settings; returns whether that worked."""
    try:
        process.register(name, renewer.message_of(gateway.settings, name, ttl_ms, every_s))
    except Unsupported as error:
        if warn:
            _log.warning("lease %s: %s", name, error)
        return False
    return True
