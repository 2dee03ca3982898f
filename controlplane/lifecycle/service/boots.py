"""``Boots``: sandboxes that are started from converted images before anybody is given these, or to record a command."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from controlplane.cluster import without_agents
from controlplane.errors import Problem
from controlplane.lifecycle.admission.admissions import Admissions
from controlplane.lifecycle.admission.candidates import candidate
from controlplane.lifecycle.admission.quotas import Quotas
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.images import RecordWish, Run
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.waiting.gates.quota import TOTAL_KNOB, amount
from controlplane.model import Overcommit, Range, Sandbox, SandboxSpec
from controlplane.store import Admission, Admitted, Full

# No owner with an API key has a colon in its name.
OWNER: Final = "check:images"
# Reads a shell and what it is linked with.
COMMAND: Final = ("/bin/sh", "-c", "exit 0")
START_WITHIN_MS: Final = 300_000
TTL_MS: Final = 600_000
# Of a recording, beside its start and its command.
SPARE_MS: Final = 120_000
# A label that every kubelet puts on its node.
ARCHITECTURE: Final = "kubernetes.io/arch"
_MIB: Final = 1 << 20


class Boots:
    """Starts a sandbox from an image, runs a command in it, and ends it.

    Args:
        deps: the sidecars, and the cluster.
        ledger, settlements: end it, and tell when its start is over.
        admissions: begins its start: it waits for its turn as every other one.
        quotas: how many sandboxes the installation may have.
    """

    def __init__(
        self, deps: Dependencies, ledger: Ledger, settlements: Settlements, *, admissions: Admissions, quotas: Quotas
    ) -> None:
        self._deps = deps
        self._quotas = quotas
        self._ledger = ledger
        self._settlements = settlements
        self._admissions = admissions

    async def boot(self, image: str, architecture: str) -> str:
        """Starts a sandbox from a converted image; why a command in it failed, empty: it did not.

        Args:
            image: a converted copy.
            architecture: of the node, as images name it; empty: any.

        Raises:
            Problem: it did not start, which may be the platform's fault: it is to be tried again.
        """
        spec = SandboxSpec(
            image=image,
            pull="lazy",
            node_selector={ARCHITECTURE: architecture} if architecture else {},
            cpu_millicores=Range(request=10, limit=1_000),
            memory_bytes=Range(request=64 * _MIB, limit=512 * _MIB),
            start_timeout_ms=START_WITHIN_MS,
            ttl_ms=TTL_MS,
        )
        async with self._started(OWNER, spec, "the image was started from") as sandbox:
            return await self._tried(sandbox)

    async def record(self, owner: str, image: str, wish: RecordWish) -> Run:
        """Runs a command in a sandbox of an owner, and tells which files of its image that opens.

        It counts against the owner's quota as its other sandboxes do, and is deleted after the command.

        Args:
            owner: whose command it is.
            image: a converted copy.
            wish: the command.

        Raises:
            Problem: quota_exceeded, capacity_unavailable: there is no room for the sandbox; exec_deadline; why it did
                not start; those of ``LazyNodes.opened``.
        """
        if (lazy := self._deps.cluster.lazy) is None:
            raise without_agents("no node tells which files a sandbox opens")
        ttl_ms = START_WITHIN_MS + wish.within_ms + SPARE_MS
        spec = SandboxSpec(image=image, pull="lazy", start_timeout_ms=START_WITHIN_MS, ttl_ms=ttl_ms)
        failed = ""
        async with self._started(owner, spec, "the command was recorded") as sandbox:
            if sandbox.end is not None:
                raise Problem(sandbox.end.cause, f"the sandbox of the command did not start: {sandbox.end.detail}")
            token = self._deps.key.token(sandbox).text

            async def run() -> None:
                nonlocal failed
                failed = await self._deps.sidecars.ran(sandbox.address or "", token, wish.command, wish.within_ms)

            opened = await lazy.opened(sandbox.id, run)
        return Run(opened.paths, opened.more, failed)

    @asynccontextmanager
    async def _started(self, owner: str, spec: SandboxSpec, why_over: str) -> AsyncIterator[Sandbox]:
        """A sandbox whose start is over; it is ended with the block, also where that is broken off."""
        wish = candidate(
            owner, spec, None, now_ms=self._deps.clock.now_ms(), idle_timeout_ms=0, overcommit=Overcommit()
        )
        admission = await self._admissions.start(wish, self._quotas.limits(owner))
        if not isinstance(admission, Admitted):
            raise _no_room(admission)
        try:
            yield await self._settlements.settled(admission.sandbox)
        finally:
            await asyncio.shield(self._ledger.end(admission.sandbox.id, Problem("deleted", why_over), PLATFORM))

    async def _tried(self, sandbox: Sandbox) -> str:
        if sandbox.end is not None:
            # Never the caller's fault: what is started from is of the platform.
            raise Problem("image_pull_failed", f"no sandbox started from it: {sandbox.end.detail}")
        token = self._deps.key.token(sandbox).text
        why = await self._deps.sidecars.tried(sandbox.address or "", token, COMMAND)
        await self._check_mounted(sandbox)
        return why

    async def _check_mounted(self, sandbox: Sandbox) -> None:
        """Checks that its node has not fetched the image whole, where node agents tell."""
        if (nodes := self._deps.cluster.node_images) is None:
            return
        try:
            found = await nodes.all()
        except Problem:
            return
        placed, digest = self._deps.cluster.node_of(sandbox.id), sandbox.spec.image.partition("@")[2]
        where = "" if placed is None else placed.node
        if any(one.lazy is False and (one.node, one.digest) == (where, digest) for one in found):
            detail = f"node {where} has fetched it whole; its snapshotter counts why (rollbox_snapshotter_layers_total)"
            raise Problem("image_pull_failed", detail)


def _no_room(admission: Admission) -> Problem:
    if isinstance(admission, Full) and admission.resource != "total":
        used, limit = (amount(admission.resource, one) for one in (admission.used, admission.limit))
        detail = f"the owner uses {used} of {limit}: delete some, or have the limit raised"
        return Problem("quota_exceeded", f"there is no room for a sandbox to start from it once: {detail}")
    return Problem("capacity_unavailable", "there is no room to start from it once", knob=TOTAL_KNOB)
