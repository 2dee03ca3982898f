"""``RegistryCleanup``: keeps the private registry within its budget, and has it give back the room of what is gone.

The plan is ``images.budget``'s, as for nodes: this names what is needed, and has the registry's collector remove the
rest. Nothing but copies of others' images is removed, since these can be made again. What a copy and any other image
share stays with that one. What goes also while the registry has room: recorded copies that nobody is given any more, or
that are too much of one owner (``images.recorded``), and converted copies of commits that are gone.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import NodeImage
from controlplane.errors import Problem
from controlplane.images import (
    COMMITTED,
    Budget,
    Collector,
    ImageOptions,
    PrivateRegistry,
    RegistryImage,
    RegistryRoom,
    StoredImage,
    parse,
    plan_removal,
)
from controlplane.lifecycle.housekeeping.copy_removals import MOST_REMOVED, CopyRemovals
from controlplane.lifecycle.housekeeping.needed import Needed, Needs
from controlplane.lifecycle.images import RegistryStore
from controlplane.store import StoreLostError
from controlplane.telemetry import Metrics

LOOK_EVERY_S: Final = 600.0
# Before the first look: a replica that has just started has taken in what runs by then.
WAIT_S: Final = 15.0
# So many images are looked at before others have their turn.
TURN_AFTER: Final = 500
# Where the registry is full, what was used within this time stays; far longer than a start takes a copy to be there
# that was (``copies.THERE_MS``).
URGENT_YOUNG_MS: Final = 300_000
URGENT_PERCENT: Final = 80
# Between two clean-ups of a registry that is full: what the first one has removed is free by then.
URGENT_EVERY_S: Final = 30.0
# Between two looks whether another replica is at it.
LOOK_AGAIN_S: Final = 5.0
# The name of its lease.
FULL: Final = "full registry"

Alone = Callable[[str], AbstractAsyncContextManager[bool]]


class RegistryCleanup:
    """The clean-up of the private registry; ``turn`` is one look, at one replica at a time.

    Args:
        collector: sees the registry's files.
        private: the registry.
        needs: knows what is needed.
        options: what the registry may have, and each owner's recorded copies in it.
        store: says when the registry is full.
        clock: the time of day.
        metrics: counts bytes, removals and collections.
    """

    def __init__(
        self,
        collector: Collector,
        private: PrivateRegistry,
        needs: Needs,
        options: ImageOptions,
        *,
        store: RegistryStore,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._collector = collector
        self._private = private
        self._needs = needs
        self._limit = options.budget
        self._removals = CopyRemovals(collector, needs, options.recorded_bytes, clock=clock, metrics=metrics)
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._cleaning = asyncio.Lock()
        self._log = structlog.get_logger("images")

    async def turn(self) -> None:
        """Looks at the registry, removes what is too much, and has the room of what is gone given back.

        Raises:
            Problem: the registry, or what is needed, cannot be read; the collection has failed.
        """
        await asyncio.sleep(WAIT_S)
        await self._clean(urgent=False)

    async def when_full(self, alone: Alone) -> None:
        """Cleans up at once, whenever a start has found the registry full, until it is cancelled.

        Args:
            alone: whether no other replica does so; none begins it until the block ends.
        """
        while True:
            await self._store.wanted()
            try:
                async with alone(FULL) as mine:
                    if mine:
                        await self._clean_full()
                        # Others heard that it is full a moment ago: none of them begins before what went is free.
                        await asyncio.sleep(URGENT_EVERY_S)
            except (Problem, StoreLostError) as problem:
                self._log.error("it is not known which replica cleans the registry up", detail=str(problem))
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _clean_full(self) -> None:
        self._log.warning("the private registry is full, it is cleaned up")
        try:
            await self._clean(urgent=True)
        except Problem as problem:
            self._log.error("the registry is not cleaned up", code=problem.code, detail=problem.detail)
        except Exception:
            # Raised, it would end all that shares the group with it: the whole control plane.
            self._log.exception("the registry is not cleaned up")

    async def _clean(self, *, urgent: bool) -> None:
        async with self._cleaning:
            await self._store.tell()
            try:
                urgent = await self._reduce(urgent=urgent)
            except Problem as problem:
                # What was removed before, and what owners have removed, is collected all the same.
                self._log.warning("no copies are removed", code=problem.code, detail=problem.detail)
            await self._collect(urgent=urgent)
            room = await self._collector.room()
            budget = self._limit.budget(room.disk_bytes)
            self._metrics.image_store("registry", room.used_bytes, 0 if budget is None else budget.limit_bytes)

    async def _reduce(self, *, urgent: bool) -> bool:
        """Removes what is too much; whether the registry is full."""
        room = await self._collector.room()
        urgent = urgent or room.full
        images = await self._collector.stored()
        copies = sum(one.repository.startswith(self._private.copies) for one in images)
        self._metrics.registry_images(copies, len(images) - copies)
        # After the registry was read: what is needed by then is not removed, whenever it came.
        needed = await self._needs.now()
        by_name = {self._private.stored_name(one): one for one in images}
        gone = _without_source(self._private, by_name)
        await self._removals.all(gone, self._why)
        left = await self._removals.recorded(needed, {name: by_name[name] for name in by_name.keys() - gone.keys()})
        await self._remove_some(needed, room, left, urgent=urgent)
        return urgent

    async def _remove_some(
        self, needed: Needed, room: RegistryRoom, by_name: Mapping[str, RegistryImage], *, urgent: bool
    ) -> None:
        budget = self._budget(room, by_name.values(), urgent=urgent)
        if budget is None:
            return
        entries = []
        for position, (name, one) in enumerate(by_name.items()):
            if not position % TURN_AFTER:
                await asyncio.sleep(0)
            entries.append(StoredImage(name, one.parts, one.used_ms, self._why(needed, name, one)))
        plan = plan_removal(entries, budget, self._clock.now_ms())
        if plan.total_bytes > budget.limit_bytes:
            about = {"bytes": plan.total_bytes, "limit_bytes": budget.limit_bytes, "needed_bytes": plan.needed_bytes}
            self._log.info("the private registry has more than it may", removals=len(plan.removals), **about)
        goes = [one.digest for one in plan.removals[:MOST_REMOVED]]
        await self._removals.all({name: by_name[name] for name in goes}, self._why)

    def _budget(self, room: RegistryRoom, images: Iterable[RegistryImage], *, urgent: bool) -> Budget | None:
        budget = self._limit.budget(room.disk_bytes)
        if budget is None or not urgent:
            return budget
        # It is full, whatever it may have: others may share its volume, or what is there is not all its images'.
        sizes: dict[str, int] = {}
        for one in images:
            sizes.update(one.parts)
        low = min(budget.low_bytes, sum(sizes.values()) * URGENT_PERCENT // 100)
        return Budget(low, low, URGENT_YOUNG_MS)

    def _why(self, needed: Needed, name: str, image: RegistryImage) -> Sequence[str]:
        if not image.repository.startswith(self._private.copies):
            return ["no copy"]
        return needed.why(NodeImage("", (name,), image.digest, 0), image.sources)

    async def _collect(self, *, urgent: bool) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            done = await self._collector.collect(urgent=urgent)
        except Problem:
            self._metrics.registry_not_collected()
            raise
        self._metrics.registry_collected(done.freed_bytes, done.blobs, asyncio.get_running_loop().time() - began_s)
        if done.freed_blobs or done.ended_uploads or done.kept_blobs:
            about: Mapping[str, int] = {"uploads": done.ended_uploads, "kept": done.kept_blobs}
            self._log.info("registry collected", bytes=done.freed_bytes, blobs=done.freed_blobs, **about)


def _without_source(private: PrivateRegistry, by_name: Mapping[str, RegistryImage]) -> Mapping[str, RegistryImage]:
    """The converted copies of commits that are not there any more."""
    commits = {
        (private.repository(parse(name), "estargz"), one.digest)
        for name, one in by_name.items()
        if one.repository.startswith(f"{COMMITTED}/")
    }
    return {
        name: one
        for name, one in by_name.items()
        if one.repository.startswith(private.converted_commits)
        and one.sources
        and not any((one.repository, source) in commits for source in one.sources)
    }
