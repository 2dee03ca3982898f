"""The operator's access to the store: lists live records, reads one, and records deaths."""

from collections.abc import Mapping
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.protocol import Death
from controlplane.model import EndCause, Sandbox, State
from controlplane.model.states import Change, Event, apply
from controlplane.store import Store

BY: Final = "operator"
_LIVE: Final = frozenset(State) - {State.ENDED}


class Records:
    """Reads and ends records. The store publishes each change to the control planes, which do the rest."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def live(self) -> Mapping[str, Sandbox]:
        """All records that are not in the state ``ended``.

        Raises:
            Problem: the store does not answer.
            StoreLostError: the store has lost its content; a control plane rebuilds it.
        """
        return {one.id: one for one in await self._store.find(None, {}, _LIVE)}

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """One record, tombstones included; raises as ``live`` does."""
        return await self._store.get(sandbox_id)

    async def record_death(self, death: Death) -> bool:
        """Records a death, unless an end is on record; returns whether it did. Raises as ``live`` does."""
        while (before := await self._store.get(death.sandbox_id)) is not None:
            end = EndCause(death.cause, death.detail, self._clock.now_ms(), BY)
            after = apply(before, Event.END, Change(end=end))
            if after is before:
                return False
            if await self._store.replace(after, before.version):
                return True
        return False
