"""A health check of the platform, for training loops that are about to spend GPU hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollbox._problem import SandboxError
from rollbox.breaker import BreakerState

if TYPE_CHECKING:
    from rollbox.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the platform as one client sees it.

    Attributes:
        ok: gateway and control plane answer, and creates are not stopped.
        why: what is wrong, in one sentence; empty when `ok`.
        creates: "closed" when they pass, "open" when they are refused here, "half_open" when the next one is a probe.
        retry_after_s: seconds until a create may pass; 0 when one may now.
    """

    ok: bool
    why: str
    creates: BreakerState
    retry_after_s: float

    @classmethod
    async def of(cls, gateway: Gateway) -> Health:
        """Send the request of `Client.health`."""
        breaker = gateway.breaker
        why = str(breaker.last_failure) if breaker.state != "closed" else ""
        try:
            await gateway.healthy()
        except SandboxError as error:
            why = str(error)
        return cls(not why, why, breaker.state, breaker.retry_after_s())
