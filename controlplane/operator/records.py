"""The store as the operator uses it: what lives, what one record says, and putting a death on record."""

from collections.abc import Mapping
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.protocol import Death
from controlplane.lifecycle.states import Change, Event, apply
from controlplane.model import EndCause, Sandbox, State
from controlplane.store import Store

BY: Final = "operator"
_LIVE: Final = frozenset(State) - {State.ENDED}


class Records:
    """Reads and ends records. The control plane hears of every change, and does the rest."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def live(self) -> Mapping[str, Sandbox]:
        """Every record that has not ended for good.

        Raises:
            Problem: the store does not answer.
            StoreLostError: it has forgotten what it held; whoever rebuilds it knows better than we do.
        """
        return {one.id: one for one in await self._store.find(None, {}, _LIVE)}

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """One record, tombstones included; raises as ``live`` does."""
        return await self._store.get(sandbox_id)

    async def bury(self, death: Death) -> bool:
        """Puts an end on record unless there is one; tells whether it did. Raises as ``live`` does."""
        while (before := await self._store.get(death.sandbox_id)) is not None:
            end = EndCause(death.cause, death.detail, self._clock.now_ms(), BY)
            applied = apply(before, Event.END, Change(end=end))
            if applied is None:
                return False
            if await self._store.replace(applied[0], before.version):
                return True
        return False
