"""A client's word that it is still there: while it is given, the sandboxes that go with it live on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import ref

from rollbox._problem import SandboxError

if TYPE_CHECKING:
    from rollbox.gateway import Gateway

_log = logging.getLogger("rollbox")
# A word that is lost three times in a row is early enough the fourth time.
_WORDS_PER_TTL = 4


class Leases:
    """The leases of one client, one for each time that sandboxes are to outlive it; renewed by one task each."""

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
    while True:
        # The create itself was the first word.
        await asyncio.sleep(ttl_ms / 1000 / _WORDS_PER_TTL)
        held = gateway()
        if held is None:
            return
        try:
            await held.owned("POST", "leases", name, body={"ttl_ms": ttl_ms})
        except SandboxError as error:
            _log.warning("lease %s not renewed, it will be tried again: %s", name, error.detail)
        del held
