"""The operator's access to the store: records deaths."""

from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.protocol import Death
from controlplane.model import EndCause
from controlplane.model.states import Change, Event, apply
from controlplane.store import Store

BY: Final = "operator"


class Records:
    """Ends records. The store publishes each change to the control planes, which do the rest."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def ended(self, sandbox_id: str) -> bool:
        """Whether its end is on record, or nothing of it is.

        Raises:
            Problem: the store does not answer.
            StoreLostError: the store has lost its content; a control plane rebuilds it.
            UnreadableRecordError: another version has written the record.
        """
        record = await self._store.get(sandbox_id)
        return record is None or record.end is not None

    async def record_death(self, death: Death) -> bool:
        """Records a death, unless an end is on record; returns whether it did. Raises as ``ended`` does."""
        while (before := await self._store.get(death.sandbox_id)) is not None:
            end = EndCause(death.cause, death.detail, self._clock.now_ms(), BY)
            after = apply(before, Event.END, Change(end=end))
            if after is before:
                return False
            if await self._store.replace(after, before.version):
                return True
        return False
