"""``CopyRemovals``: removes copies from the private registry, but for those that something needs by then."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import NodeImage
from controlplane.errors import Problem
from controlplane.images import CopyStore, RegistryImage, plan_recorded
from controlplane.lifecycle.housekeeping.needed import Needed, Needs
from controlplane.telemetry import Metrics

# A registry that refuses one removal refuses all: somebody has to change its settings first.
REFUSED_MS: Final = 6 * 3_600_000
# In one look: the next one plans anew.
MOST_REMOVED: Final = 1024
# After so many removals it is read again what is needed: a sandbox has its record before its copy is asked for.
READ_AGAIN_AFTER: Final = 4

# What of the needed needs an image, which has this name.
Why = Callable[[Needed, str, RegistryImage], Sequence[str]]


class CopyRemovals:
    """Removals from one registry.

    Args:
        copies: removes them.
        needs: knows what is needed.
        recorded_bytes: the most that the recorded copies of an owner may have; 0: no limit.
        clock: the time of day.
        metrics: counts removals.
    """

    def __init__(self, copies: CopyStore, needs: Needs, recorded_bytes: int, *, clock: Clock, metrics: Metrics) -> None:
        self._copies = copies
        self._needs = needs
        self._recorded_bytes = recorded_bytes
        self._clock = clock
        self._metrics = metrics
        self._refused_until_ms = 0
        self._log = structlog.get_logger("images")

    async def recorded(self, needed: Needed, by_name: Mapping[str, RegistryImage]) -> Mapping[str, RegistryImage]:
        """Removes recorded copies that nobody is given, or that are too much of one owner; what stays.

        Args:
            needed: what was needed once the registry had been read.
            by_name: what it has.

        Raises:
            Problem: what is needed cannot be read.
        """

        def why(needed: Needed, name: str, image: RegistryImage) -> Sequence[str]:
            # By its own digest: its owner's starts are given another copy of the same source.
            return needed.why(NodeImage("", (name,), image.digest, 0))

        goes = plan_recorded(
            by_name, lambda name, one: why(needed, name, one), self._recorded_bytes, self._clock.now_ms()
        )
        await self.all({name: by_name[name] for name in goes[:MOST_REMOVED]}, why)
        return {name: one for name, one in by_name.items() if name not in set(goes)}

    async def all(self, goes: Mapping[str, RegistryImage], why: Why) -> None:
        """Removes images, but for those that are needed by now; one that is not removed is told, and stops none.

        A registry that refuses (``unsupported``) is asked again after ``REFUSED_MS``.

        Raises:
            Problem: what is needed cannot be read.
        """
        needed = None
        for position, (name, one) in enumerate(goes.items()):
            if self._clock.now_ms() < self._refused_until_ms:
                return
            if needed is None or position % READ_AGAIN_AFTER == 0:
                needed = await self._needs.now()
            if why(needed, name, one):
                self._metrics.image_removed("registry", "in_use")
            else:
                await self._remove(name, one)

    async def _remove(self, name: str, image: RegistryImage) -> None:
        about = {"image": name, "bytes": sum(image.parts.values()), "recorded": image.recorded}
        try:
            there = await self._copies.remove(image.repository, image.digest, image.used_ms)
        except Problem as problem:
            used = problem.code == "conflict"
            if problem.code == "unsupported":
                self._refused_until_ms = self._clock.now_ms() + REFUSED_MS
                about["asked_again_in_s"] = REFUSED_MS // 1000
            self._metrics.image_removed("registry", "in_use" if used else "failed")
            self._log.warning("copy not removed", **about, code=problem.code, detail=problem.detail)
            return
        self._metrics.image_removed("registry", "removed" if there else "gone")
        idle_ms = self._clock.now_ms() - image.used_ms
        self._log.info("copy removed", **about, there=there, idle_s=idle_ms // 1000)
