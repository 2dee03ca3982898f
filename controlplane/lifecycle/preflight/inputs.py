"""Collects the input of a preflight: quotas, use, warm sandboxes and the cluster's capacity."""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, Protocol

from controlplane.capacity import Room
from controlplane.cluster import Cluster, ImageState
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import Quotas
from controlplane.lifecycle.images import Images, Ownership
from controlplane.lifecycle.preflight.arithmetic import Facts, Forecast, forecast
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.waiting.gates.quota import needs
from controlplane.model import UP, SandboxSpec, State, Usage
from controlplane.scaling import Prospect

# From how many of the last starts the time of a start is estimated.
STARTS: Final = 64


class StoreReader(Protocol):
    """The part of ``Store`` that a preflight uses."""

    async def usage(self, owner: str | None) -> Usage:
        """What an owner (None: all owners together) uses."""
        ...

    async def warm(self, template_hash: str) -> int:
        """How many warm sandboxes a template has."""
        ...

    async def counts(self) -> Mapping[State, int]:
        """How many sandboxes are in each state."""
        ...


class Preflight:
    """Does preflights of runs.

    Args:
        store: knows what is in use.
        cluster: knows the capacity of the nodes.
        images: knows where images are.
        quotas: the quotas of owners.
        ownership: knows whose images are.
        at_once: how many starts this installation allows at once.
    """

    def __init__(
        self,
        store: StoreReader,
        cluster: Cluster,
        images: Images,
        quotas: Quotas,
        *,
        ownership: Ownership,
        at_once: int,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._images = images
        self._quotas = quotas
        self._ownership = ownership
        self._at_once = at_once
        self._starts_ms: deque[int] = deque(maxlen=STARTS)

    def on(self, transition: Transition) -> None:
        """Measures how long starts take, from those that this replica has completed."""
        after = transition.after
        ready = Effect.SETTLE in transition.effects and after.state in UP
        if ready and transition.before is not None and "total" in after.timings_ms:
            self._starts_ms.append(max(0, after.timings_ms["total"] - after.timings_ms.get("queue", 0)))

    async def forecast(
        self,
        owner: str,
        spec: SandboxSpec,
        count: int,
        may_come: Sequence[Prospect] = (),
        refused_first: Sequence[Problem] = (),
    ) -> tuple[Forecast, ImageState]:
        """The preflight of a run, and where its image is.

        Args:
            owner: the owner of the run.
            spec: the spec of each of its sandboxes.
            count: how many run at the same time.
            may_come: the nodes that node pools may bring for them.
            refused_first: why a create would be refused, as others have found.

        Raises:
            Problem: upstream_timeout, the store does not answer.
        Cost: four calls to the store; up to three to the cluster, and to the image's registry.
        """
        found, image = await self._refused(owner, spec)
        refused = [*refused_first, *found]
        in_use = await self._store.usage(None)
        warm = await self._store.warm(spec.template_hash())
        room, request, selector = self._room(), self._cluster.request(spec), spec.node_selector
        facts = Facts(
            owner=owner,
            count=count,
            each=needs(spec),
            limits=self._quotas.limits(owner),
            used=await self._store.usage(owner),
            in_all=in_use.sandboxes,
            warm=warm,
            giving=max(0, (await self._store.counts()).get(State.WARM, 0) - warm),
            room=None if room is None else room.fit(request, selector),
            room_when_empty=None if room is None else room.fit_alone(request, selector),
            room_left="" if room is None else room.tell(request, selector),
            starts_at_once=min(self._at_once, self._cluster.starts_at_once()),
            start_ms=round(median(self._starts_ms)) if self._starts_ms else None,
            refused=refused,
            may_come=may_come,
        )
        return forecast(facts), image

    def _room(self) -> Room | None:
        room = self._cluster.room
        return room if room is not None and room.known else None

    async def _refused(self, owner: str, spec: SandboxSpec) -> tuple[list[Problem], ImageState]:
        refused: list[Problem] = []
        image: ImageState = "unknown"
        try:
            self._cluster.check(spec)
        except Problem as problem:
            refused.append(problem)
        try:
            self._ownership.check(owner, spec.image)
            await self._images.permit(owner, spec.image)
            image = await self._cluster.image(self._images.pulled(spec.image))
            if image == "unknown":
                image = await self._images.find(owner, spec.image)
        except Problem as problem:
            # Other failures only mean that the image's state is not known, which does not prevent the run.
            if problem.entry.fault == "caller":
                refused.append(problem)
        return refused, image
