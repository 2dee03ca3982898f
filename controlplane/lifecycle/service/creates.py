"""A create from its arrival to its answer: room, a claim or a cold start, and the wait until the sandbox is usable."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from controlplane.egress import Binding
from controlplane.errors import Problem
from controlplane.lifecycle.admission.abandonments import Abandonments
from controlplane.lifecycle.admission.admissions import Admissions
from controlplane.lifecycle.admission.candidates import candidate, known
from controlplane.lifecycle.datasets import Datasets
from controlplane.lifecycle.dependencies import Dependencies, Options
from controlplane.lifecycle.images import Images, Ownership
from controlplane.lifecycle.pools import Pools
from controlplane.lifecycle.record import callers
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.service.egress_calls import EgressCalls
from controlplane.lifecycle.service.owner_calls import OwnerCalls
from controlplane.lifecycle.waiting import Answer, CreateQueue
from controlplane.lifecycle.waiting.gates.quota import TOTAL
from controlplane.model import Lease, Limits, Sandbox, SandboxSpec
from controlplane.registry import RegistryProblem
from controlplane.store import Admitted, Claimed, Full, Known

# Of one create; the next sandbox is a cold one.
MOST_REPLACED: Final = 4


@dataclass(frozen=True, slots=True)
class Created:
    """A ready sandbox; ``replayed`` when its key had been used before with the same parameters."""

    sandbox: Sandbox
    replayed: bool


class Creates:
    """Answers creates. ``draining`` refuses new ones: the end of this process is near."""

    def __init__(
        self,
        deps: Dependencies,
        options: Options,
        ledger: Ledger,
        settlements: Settlements,
        *,
        create_queue: CreateQueue,
        admissions: Admissions,
        abandonments: Abandonments,
        pools: Pools,
        owner_calls: OwnerCalls,
        egress: EgressCalls,
        images: Images,
        ownership: Ownership,
        datasets: Datasets,
        refusal: Callable[[str], Problem | None],
    ) -> None:
        self._refusal = refusal
        self._images = images
        self._deps = deps
        self._options = options
        self._ledger = ledger
        self._settlements = settlements
        self._queue = create_queue
        self._admissions = admissions
        self._abandonments = abandonments
        self._pools = pools
        self._owner_calls = owner_calls
        self._egress = egress
        self._ownership = ownership
        self._datasets = datasets
        self.draining = False

    def deadline_ms(self, spec: SandboxSpec, left_ms: int | None = None) -> int:
        """Until when a create that comes now may take (Unix ms): what is ``left_ms`` of its start timeout, else all."""
        start_ms = spec.start_timeout_ms
        return self._deps.clock.now_ms() + (start_ms if left_ms is None else min(left_ms, start_ms))

    async def create(
        self,
        owner: str,
        spec: SandboxSpec,
        key: str | None,
        *,
        by_ms: int | None,
        caller: str,
        begun: list[Sandbox],
        replaced: int = 0,
    ) -> Created:
        """Creates a sandbox and returns when it is ready.

        A repeated ``key`` with the same spec waits for and answers the same sandbox. A cancelled call does not stop
        the start: the owner may come back for it with its key, or what was begun is given to ``abandon``.

        Args:
            owner: whose it will be.
            spec: what it is to be.
            key: the idempotency key.
            by_ms: as for ``request``.
            caller: this try of a create with a key (``callers.new_caller``).
            begun: gets the sandbox as soon as there is one, and another one in its place.
            replaced: how many that were claimed for it have gone, because a gateway could not bind their settings.

        Raises:
            Problem: draining, unsupported, permission_denied (another owner's image), conflict, deleted (the key was
                withdrawn), capacity_unavailable, egress_unavailable, or why the sandbox ended before it was ready.
        """
        sandbox, replayed = await self.request(owner, spec, key, by_ms, caller=caller, replaced=replaced)
        begun.append(sandbox)
        try:
            begun.append(await self.ready(sandbox, by_ms, fresh=not replayed, lease=spec.lease))
            begun[-1] = await self._egress.begun(begun[-1])
        except Problem as problem:
            # Neither its end, nor sent to another replica: its caller may not come back for it.
            if "ended_at_ms" not in problem.details and problem.code != "draining":
                self._abandonments.abandon(sandbox, caller)
            raise
        return Created(begun[-1], replayed)

    async def request(
        self,
        owner: str,
        spec: SandboxSpec,
        key: str | None,
        by_ms: int | None,
        *,
        caller: str,
        replaced: int = 0,
    ) -> tuple[Sandbox, bool]:
        """Claims a warm sandbox, or admits one and begins its start; it is usable once ``ready`` has returned it.

        Args:
            owner: whose it will be.
            spec: what it is to be.
            key: the idempotency key.
            by_ms: the caller's deadline for all that it waits for (Unix ms), where less is left than the spec says.
            caller: as for ``create``.
            replaced: as for ``create``.

        Returns:
            The record, and whether the key had been used before.

        Raises:
            Problem: draining, unsupported, conflict, deleted (the key was withdrawn), capacity_unavailable; not_found,
                permission_denied, dataset_unavailable: a data set that it is to mount.
        """
        if self.draining:
            raise Problem("draining", "this control plane is stopping", retry_after_ms=1000)
        self._ownership.check(owner, spec.image)
        self._deps.cluster.check(self._options.overcommit.filled(spec))
        self._options.networks.check(owner, spec.network)
        wish = self._candidate(owner, spec, key, by_ms, await self._egress.bound(owner, spec))
        wish = wish if key is None else replace(wish, callers=(caller,))
        if (refused := await self._datasets.refused(owner, spec)) is not None:
            # It may have been there when the key was used first.
            if (begun := await self._begun(wish)) is None:
                raise refused
            return begun, True
        try:
            await self._images.permit(owner, spec.image)
        except RegistryProblem:
            # Nobody says whether the owner has lost the right, which it had when its key was used first.
            if (begun := await self._begun(wish)) is None:
                raise
            return begun, True
        return await self._admitted(wish, _cold_reason(replaced))

    async def ready(
        self, sandbox: Sandbox, by_ms: int | None = None, *, fresh: bool = False, lease: Lease | None = None
    ) -> Sandbox:
        """Waits until the sandbox is usable; its record. A claimed one that has died meanwhile is replaced.

        Args:
            sandbox: as ``request`` has returned it.
            by_ms: as for ``request``: one that takes the place of a dead one has what is left.
            fresh: its key had not been used before: it is counted as given.
            lease: whose it is from now on: a client that comes back after a restart is another one.

        Raises:
            Problem: why it ended; draining: it gets ready elsewhere, ask there with its key. Without a key it is ended.
        """
        replaced = 0
        try:
            while sandbox.warm and sandbox.end is None and not await self._admissions.bind(sandbox):
                replaced += 1
                binding = replace(sandbox.egress, applied=0)
                again = self._candidate(sandbox.owner, sandbox.spec, sandbox.idempotency_key, by_ms, binding)
                again = replace(
                    again,
                    fingerprint=sandbox.fingerprint,
                    callers=sandbox.callers,
                    settings_digest=sandbox.settings_digest,
                )
                sandbox, replayed = await self._admitted(again, _cold_reason(replaced))
                fresh = fresh and not replayed
            if fresh and sandbox.warm:
                self._deps.metrics.created(sandbox.pool, "warm")
                # As the store has given it a moment ago, and no end was heard of since.
                return sandbox
            return await self._leased(await self._settled(sandbox), lease)
        except asyncio.CancelledError:
            if replaced and sandbox.idempotency_key is None:
                self._abandonments.disown(sandbox)
            raise

    def _candidate(self, owner: str, spec: SandboxSpec, key: str | None, by_ms: int | None, egress: Binding) -> Sandbox:
        return candidate(
            owner,
            spec,
            key,
            now_ms=self._deps.clock.now_ms(),
            idle_timeout_ms=self._options.idle_timeout_ms,
            overcommit=self._options.overcommit,
            by_ms=by_ms,
            egress=egress,
        )

    async def _admitted(self, wish: Sandbox, cold_reason: str = "") -> tuple[Sandbox, bool]:
        async def attempt(limits: Limits) -> Answer:
            # It may have waited: its life begins when it is let in.
            now = replace(wish, expires_at_ms=self._deps.clock.now_ms() + wish.spec.ttl_ms)
            answer = await self._admissions.admit(now, limits, cold_reason=cold_reason)
            while isinstance(answer, Full) and answer.resource == TOTAL and await self._pools.give_way():
                answer = await self._admissions.admit(now, limits, cold_reason=cold_reason)
            return answer

        while True:
            answer = await self._queue.enter(wish, attempt)
            if isinstance(answer, Admitted | Claimed):
                return answer.sandbox, False
            if (joined := await self._joined(known(answer, wish), wish)) is not None:
                return joined, True

    async def _begun(self, wish: Sandbox) -> Sandbox | None:
        """The sandbox that has the wish's key already; None: there is none."""
        if wish.idempotency_key is None:
            return None
        found = await self._ledger.find_claim(wish)
        return None if found is None else await self._joined(known(Known(found), wish), wish)

    async def _joined(self, sandbox: Sandbox, wish: Sandbox) -> Sandbox | None:
        """The sandbox that has the wish's key, wanted by its caller too; None: its abandonment has freed the key."""
        if not wish.callers or sandbox.end is not None:
            return sandbox
        joined = await self._ledger.change(sandbox.id, lambda record: callers.joined(record, wish.callers[0]))
        if joined is None or (joined.end is not None and joined.end.cause == "create_abandoned"):
            return None
        return known(Known(joined), wish)

    async def _leased(self, sandbox: Sandbox, lease: Lease | None) -> Sandbox:
        # Not before it is given: a caller that goes away during the start must not have taken it from another one.
        if lease is None or sandbox.spec.lease in (None, lease):
            return sandbox
        return await self._owner_calls.give_lease(sandbox.owner, sandbox.id, lease)

    async def _settled(self, sandbox: Sandbox) -> Sandbox:
        try:
            settled = await self._settlements.settled(sandbox)
        except Problem as problem:
            if problem.code == "draining" and sandbox.idempotency_key is None:
                # Not in the background: this control plane is leaving.
                gone = Problem("create_abandoned", "it has no key by which its creator could ask another replica")
                await self._ledger.end(sandbox.id, gone, PLATFORM)
            if problem.code == "sandbox_not_found":
                detail = f"{sandbox.id} was forgotten with the store before it was ready: ask again with its key"
                raise Problem("upstream_timeout", detail, retry_after_ms=200) from problem
            raise
        if settled.end is not None:
            raise self._refusal(settled.id) or settled.end.problem(settled)
        return settled


def _cold_reason(replaced: int) -> str:
    """Why no warm sandbox is wanted, after so many were claimed in vain; empty: one is."""
    return "" if replaced < MOST_REPLACED else f"{replaced} warm ones were dead when they were claimed"
