"""``RecordedCleanup``: keeps recorded copies within bounds in a registry that somebody else looks after.

Only they are made again and again for the same image, so only they grow without end; all else there is whoever runs the
registry's to remove, and so are the bytes of what no image names any more.
"""

import asyncio
from typing import Final

from controlplane.images import CopyStore, PrivateRegistry
from controlplane.lifecycle.housekeeping.copy_removals import CopyRemovals
from controlplane.lifecycle.housekeeping.needed import Needs
from controlplane.lifecycle.images import RegistryStore

# Before the first look: a replica that has just started has taken in what runs by then.
WAIT_S: Final = 15.0


class RecordedCleanup:
    """``turn`` is one look, at one replica at a time.

    Args:
        copies: lists recorded copies.
        private: the registry.
        needs: knows what is needed.
        removals: removes them.
        store: has uses that are not told yet.
    """

    def __init__(
        self,
        copies: CopyStore,
        private: PrivateRegistry,
        needs: Needs,
        removals: CopyRemovals,
        *,
        store: RegistryStore,
    ) -> None:
        self._copies = copies
        self._private = private
        self._needs = needs
        self._removals = removals
        self._store = store

    async def turn(self) -> None:
        """Looks at the registry, once this replica has taken in what runs.

        Raises:
            Problem: see ``look``.
        """
        await asyncio.sleep(WAIT_S)
        await self.look()

    async def look(self) -> None:
        """Removes what is too much. Cost: as ``RecordedList.all``, and for each removal.

        Raises:
            Problem: the registry, or what is needed, cannot be read.
        """
        await self._store.tell()
        recorded = await self._copies.stored()
        # After the registry was read: what is needed by then is not removed, whenever it came.
        needed = await self._needs.now()
        await self._removals.recorded(needed, {self._private.stored_name(one): one for one in recorded})
