"""``RecordedShare``: how many bytes an owner's recorded copies may take in the private registry."""

from typing import Final

from controlplane.errors import Problem
from controlplane.images import Collector, in_tags

KNOB: Final = "registry.recordedGibibytesPerOwner"


class RecordedShare:
    """Refuses a recorded copy of an owner that has as much as it may.

    Args:
        collector: counts them; None: somebody else looks after the registry, and nobody counts.
        limit_bytes: of each owner; 0: no limit.
    """

    def __init__(self, collector: Collector | None, limit_bytes: int) -> None:
        self._collector = collector
        self._limit_bytes = limit_bytes

    async def check(self, owner: str, whose: str) -> None:
        """Checks that one more may be made. How large it will be is not known: so an owner may have one too much.

        Args:
            owner: for people.
            whose: what stands for it.

        Raises:
            Problem: quota_exceeded; why the collector does not tell.
        """
        if self._collector is None or not self._limit_bytes:
            return
        copies, used = await self._collector.recorded(in_tags(whose))
        if used < self._limit_bytes:
            return
        detail = (
            f"no recorded copy is made: {owner} has {used} bytes of at most {self._limit_bytes} in {copies} of them. "
            "Those that nothing used for half an hour, and that later lists took the place of, go within ten minutes; "
            f"the limit is {KNOB} in the chart's values"
        )
        raise Problem(
            "quota_exceeded", detail, resource="recorded_bytes", used=used, limit=self._limit_bytes, knob=KNOB
        )
