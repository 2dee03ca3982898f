"""Starting and retiring sandboxes that belong to a pool until they are claimed."""

import random
from dataclasses import replace
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.admission.admissions import Admissions
from controlplane.lifecycle.admission.candidates import candidate, known
from controlplane.lifecycle.admission.quotas import Quotas
from controlplane.lifecycle.dependencies import Dependencies, Options
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.waiting.gates.quota import TOTAL_KNOB
from controlplane.model import Sandbox, SandboxSpec, pool_owner
from controlplane.model.states import Event
from controlplane.store import Admitted, Fence, Full

# Of a sandbox that no create claims: a kernel of days ago, an image that has moved on.
WARM_TTL_MS: Final = 24 * 3_600_000


class WarmStarts:
    """What the pools' plan is carried out with."""

    def __init__(
        self, deps: Dependencies, options: Options, ledger: Ledger, admissions: Admissions, quotas: Quotas
    ) -> None:
        self._deps = deps
        self._options = options
        self._ledger = ledger
        self._admissions = admissions
        self._quotas = quotas

    def at_once(self) -> int:
        """How many starts of all pools together may be under way: what the nodes and the start queue bear."""
        return min(self._options.starts_in_flight, self._deps.cluster.starts_at_once())

    async def start(
        self, pool: str, spec: SandboxSpec, fence: Fence | None = None, *, spare: int = 0, interpreter: str = ""
    ) -> Sandbox:
        """Begins the start of a sandbox of a pool; does not wait until it is ready.

        Args:
            pool: its name.
            spec: its template, and how long its start may take.
            fence: the lease that the caller acts under.
            spare: so many places of the installation are left to creates.
            interpreter: what it keeps running for its first caller.

        Raises:
            Problem: unsupported, capacity_unavailable (the installation is full), the store's; FencedError.
        """
        self._deps.cluster.check(spec)
        wish = candidate(
            pool_owner(pool),
            spec,
            None,
            now_ms=self._deps.clock.now_ms(),
            idle_timeout_ms=self._options.idle_timeout_ms,
            overcommit=self._options.overcommit,
        )
        # What is started together must not end together.
        ttl_ms = round(WARM_TTL_MS * random.uniform(0.8, 1.2))  # noqa: S311
        # Not the platform's idle timeout: it is there to be idle.
        expires_at_ms = wish.created_at_ms + ttl_ms
        wish = replace(wish, spec=spec, pool=pool, interpreter=interpreter, expires_at_ms=expires_at_ms)
        limits = self._quotas.limits(wish.owner)
        left = replace(limits, total=max(1, limits.total - spare)) if limits.total else limits
        admission = await self._admissions.start(wish, left, fence)
        if isinstance(admission, Full) and spare:
            detail = f"{admission.used} of {limits.total} sandboxes are in use, and {spare} places are left to creates"
            raise Problem("capacity_unavailable", f"{detail} that found none", knob=TOTAL_KNOB)
        return admission.sandbox if isinstance(admission, Admitted) else known(admission, wish)

    async def retire(self, sandbox_id: str, by: str, why: str) -> bool:
        """Ends a sandbox of a pool, unless it was claimed; whether it did. Does not wait for the cluster."""
        return await self._ledger.end(sandbox_id, Problem("deleted", why), by, Event.RETIRE)
