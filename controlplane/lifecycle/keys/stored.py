"""The keys on record, as this process has read them last."""

import asyncio
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.documents import Documents
from controlplane.errors import Problem
from controlplane.lifecycle.keys.declared import StoredKey, stored
from controlplane.lifecycle.record.recovering_store import RecoveringStore

# So long what was read holds, from the moment on when it was asked for.
FRESH_S: Final = 0.5
# After so long keys are listed again without a note: somebody may have removed one with kubectl.
LISTED_S: Final = 30.0
# The store's note that says which state of the keys is the newest; it is another one after each change.
NOTE: Final = "keys"
# Where there is none, as in a store that was lost, the first process that looks writes one, and all read keys again.
NOTE_MS: Final = 30 * 24 * 3_600_000
# How exact the time of the last use is: each change of it is a write to the cluster.
USED_MS: Final = 3_600_000
MOST_TRIES: Final = 8


class StoredKeys:
    """Finds keys by id. What a revoke has changed is known to every process ``FRESH_S`` after its answer.

    Documents are where keys are; the store's note tells within one small read whether they have changed. A store that
    does not answer refuses the call: a key that may be revoked opens nothing.

    Args:
        documents: where keys are declared.
        store: has the note.
        clock: of uses.
    """

    def __init__(self, documents: Documents, store: RecoveringStore, clock: Clock) -> None:
        self._documents, self._store, self._clock = documents, store, clock
        self._known: Mapping[str, StoredKey] = {}
        self._read: str | None = None
        self._asked_s = self._listed_s = float("-inf")
        self._asking = asyncio.Lock()
        self._written: dict[str, int] = {}
        self._used = asyncio.Event()
        self._to_write: dict[str, int] = {}
        self._log = structlog.get_logger("keys")

    async def find(self, key_id: str) -> StoredKey | None:
        """One key; None: there is none.

        Raises:
            Problem: the store or the cluster does not answer.

        Cost: none within ``FRESH_S`` of the last read; else a read of the store, which all calls share.
        """
        if asyncio.get_running_loop().time() - self._asked_s >= FRESH_S:
            await self._refresh()
        return self._known.get(key_id)

    async def all(self) -> Sequence[StoredKey]:
        """All keys, by id, from the cluster.

        Raises:
            Problem: the cluster does not answer.
        """
        found = map(stored, await self._documents.list("keys"))
        return [one for one in found if one is not None]

    async def announce(self) -> None:
        """Tells every process that keys have changed; before that a change is not in force.

        Raises:
            Problem: the store does not answer.
        """
        for _ in range(MOST_TRIES):
            before = await self._store.note(NOTE)
            if await self._store.write_note(NOTE, token_hex(8), NOTE_MS, before=before):
                self._asked_s = float("-inf")
                return
        raise Problem("conflict", "keys change faster than that can be told: repeat the call", retry_after_ms=1000)

    def use(self, key: StoredKey) -> None:
        """Notes that a key was used; ``run`` writes it."""
        now_ms = self._clock.now_ms()
        if now_ms - max(key.used_at_ms or 0, self._written.get(key.id, 0)) >= USED_MS:
            self._written[key.id] = self._to_write[key.id] = now_ms
            self._used.set()

    async def run(self) -> None:
        """Writes uses until cancelled; one that cannot be written is written by the next use."""
        while True:
            await self._used.wait()
            self._used.clear()
            while self._to_write:
                key_id, at_ms = self._to_write.popitem()
                try:
                    await self._documents.status("keys", key_id, {"used_at_ms": at_ms})
                except Problem as problem:
                    self._written.pop(key_id, None)
                    self._log.warning("the use of a key is not noted", key=key_id, detail=problem.detail)

    async def _begun(self) -> str:
        """The first note of a store that has none."""
        await self._store.write_note(NOTE, token_hex(8), NOTE_MS)
        return await self._store.note(NOTE)

    async def _list(self) -> None:
        self._listed_s = asyncio.get_running_loop().time()
        self._known = {one.id: one for one in await self.all()}
        self._written = {name: at for name, at in self._written.items() if name in self._known}

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_s < FRESH_S:
                return
            asked_s = loop.time()
            # First the note: keys that change between the two reads are read again.
            newest = await self._store.note(NOTE) or await self._begun()
            if self._read != newest:
                await self._list()
                self._read = newest
            elif asked_s - self._listed_s >= LISTED_S:
                try:
                    await self._list()
                except Problem as away:
                    # The note says that nothing was changed by this API: what is known holds until the cluster answers.
                    self._listed_s = asked_s
                    self._log.warning("keys are not listed again", detail=away.detail)
            self._asked_s = asked_s
