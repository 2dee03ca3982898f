"""``RecordedShare``: how many bytes an owner's recorded copies may take in the private registry."""

from typing import Final

from controlplane.errors import Problem
from controlplane.images import CopyStore, in_tags
from controlplane.model.units import size

KNOB: Final = "registry.recordedGibibytesPerOwner"


class RecordedShare:
    """Refuses a recorded copy of an owner that has as much as it may.

    Args:
        copies: counts them; None: nobody does.
        limit_bytes: of each owner; 0: no limit.
    """

    def __init__(self, copies: CopyStore | None, limit_bytes: int) -> None:
        self._copies = copies
        self._limit_bytes = limit_bytes

    async def check(self, owner: str, whose: str) -> None:
        """Checks that one more may be made. How large it will be is not known: so an owner may have one too much.

        Args:
            owner: for people.
            whose: what stands for it.

        Raises:
            Problem: quota_exceeded; why nobody tells.
        """
        if self._copies is None or not self._limit_bytes:
            return
        number, used = await self._copies.recorded(in_tags(whose))
        if used < self._limit_bytes:
            return
        detail = (
            f"no recorded copy is made: {owner} has {size(used)} of at most {size(self._limit_bytes)} in {number} "
            f"{'copy' if number == 1 else 'copies'}. Those that nothing used for half an hour, and that later lists "
            f"took the place of, go within ten minutes; the limit is {KNOB} in the chart's values"
        )
        raise Problem(
            "quota_exceeded", detail, resource="recorded_bytes", used=used, limit=self._limit_bytes, knob=KNOB
        )
