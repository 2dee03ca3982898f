"""Looks at the facts that a run is weighed against."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Final, Protocol

from controlplane.cluster import Cluster, ImageState
from controlplane.errors import Problem
from controlplane.lifecycle.preflight.arithmetic import Facts, Foresight, foresee
from controlplane.lifecycle.queue.verdict import needs
from controlplane.lifecycle.quotas import Quotas
from controlplane.model import Sandbox, SandboxSpec, State, Usage

# How many of the last starts tell how long one takes.
STARTS: Final = 64


class Books(Protocol):
    """What the survey asks the store; see ``Store``."""

    async def usage(self, owner: str | None) -> Usage:
        """What an owner (None: everybody) uses."""
        ...

    async def warm(self, template_hash: str) -> int:
        """How many warm ones a template has."""
        ...

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """Those in these states."""
        ...

    async def counts(self) -> Mapping[State, int]:
        """How many there are in each state."""
        ...


class Surveyor:
    """Weighs runs before they begin.

    Args:
        store: what is in use.
        cluster: what the nodes can do.
        quotas: what owners may have.
        at_once: how many starts this installation allows side by side.
    """

    def __init__(self, store: Books, cluster: Cluster, quotas: Quotas, at_once: int) -> None:
        self._store = store
        self._cluster = cluster
        self._quotas = quotas
        self._at_once = at_once
        self._starts_ms: deque[int] = deque(maxlen=STARTS)

    def started(self, before: Sandbox | None, after: Sandbox) -> None:
        """Hears of every change: how long starts take is learned from those that are over."""
        ready = after.state in (State.RUNNING, State.WARM)
        if ready and before is not None and before.state.unready and "total" in after.timings_ms:
            self._starts_ms.append(max(0, after.timings_ms["total"] - after.timings_ms.get("queue", 0)))

    async def foresee(self, owner: str, spec: SandboxSpec, count: int) -> tuple[Foresight, ImageState]:
        """What becomes of a run, and where its image is.

        Args:
            owner: whose run.
            spec: of each of its sandboxes.
            count: how many run at the same time.

        Raises:
            Problem: upstream_timeout, the store does not say what is in use.
        Cost: five questions to the store; up to three to the cluster.
        """
        refused, image = await self._refused(spec)
        in_use = await self._store.usage(None)
        # They use no quota any more, and their nodes' room until the cluster has confirmed that they are gone.
        ending = await self._store.find(None, {}, {State.ENDING})
        warm = await self._store.warm(spec.template_hash())
        facts = Facts(
            owner=owner,
            count=count,
            each=needs(spec),
            limits=self._quotas.limits(owner),
            used=await self._store.usage(owner),
            in_all=in_use.sandboxes,
            warm=warm,
            giving=max(0, (await self._store.counts()).get(State.WARM, 0) - warm),
            room=self._cluster.holds(spec, sum((needs(one.spec) for one in ending), in_use)),
            room_when_empty=self._cluster.holds(spec, Usage()),
            starts_at_once=min(self._at_once, self._cluster.starts_at_once()),
            start_ms=round(median(self._starts_ms)) if self._starts_ms else None,
            refused=refused,
        )
        return foresee(facts), image

    async def _refused(self, spec: SandboxSpec) -> tuple[list[Problem], ImageState]:
        refused: list[Problem] = []
        image: ImageState = "unknown"
        try:
            self._cluster.check(spec)
        except Problem as problem:
            refused.append(problem)
        try:
            image = await self._cluster.image(spec.image)
        except Problem as problem:
            # What only says that nobody knows is no reason against the run.
            if problem.entry.fault == "caller":
                refused.append(problem)
        return refused, image
