"""Where it is kept how far each endpoint is, and what is dead: in the store, or in files of the only process."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from controlplane.lifecycle.audit import AuditFile
from controlplane.lifecycle.record.recovering_store import RecoveringStore

CURSORS: Final = "webhooks"
# Longer than records are kept: a cursor that is older says nothing.
KEPT_MS: Final = 7 * 86_400_000
# Dead letters of one endpoint in the store, and of all in the file.
MOST_DEAD: Final = 1_000
DEAD_BYTES: Final = 8 << 20


class Keeper(Protocol):
    """Keeps cursors and dead letters. Raises, every method: ``Problem`` or ``OSError``, where it does not."""

    async def load(self) -> Mapping[str, int]:
        """Until when all is settled, by endpoint (Unix ms)."""
        ...

    async def save(self, cursors: Mapping[str, int]) -> None:
        """Keeps them."""
        ...

    async def append(self, webhook: str, lines: Sequence[str]) -> None:
        """Keeps dead letters of an endpoint."""
        ...

    async def lines(self, webhook: str) -> Sequence[str]:
        """The newest dead letters, oldest first; perhaps of other endpoints too."""
        ...

    def close(self) -> None:
        """Closes what is open."""
        ...


class StoreKeeper:
    """In the store, for all replicas; one that is lost loses them, with the timelines of ended sandboxes."""

    def __init__(self, store: RecoveringStore) -> None:
        self._store = store
        self._there = ""

    async def load(self) -> Mapping[str, int]:
        """See ``Keeper``."""
        self._there = await self._store.note(CURSORS)
        return read_cursors(self._there)

    async def save(self, cursors: Mapping[str, int]) -> None:
        """See ``Keeper``. Where another replica has written meanwhile, the next call writes."""
        text = json.dumps(cursors)
        if await self._store.write_note(CURSORS, text, KEPT_MS, before=self._there):
            self._there = text
        else:
            self._there = await self._store.note(CURSORS)

    async def append(self, webhook: str, lines: Sequence[str]) -> None:
        """See ``Keeper``."""
        await self._store.append(_list(webhook), lines, MOST_DEAD, KEPT_MS)

    async def lines(self, webhook: str) -> Sequence[str]:
        """See ``Keeper``."""
        return await self._store.lines(_list(webhook), MOST_DEAD)

    def close(self) -> None:
        """See ``Keeper``."""


class FileKeeper:
    """In two files of a folder that is this process's own.

    Raises:
        OSError: they cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._cursors = folder / "webhooks.json"
        self._dead = AuditFile(folder / "webhooks-dead.jsonl", DEAD_BYTES)

    async def load(self) -> Mapping[str, int]:
        """See ``Keeper``."""
        return read_cursors(self._cursors.read_text()) if self._cursors.is_file() else {}

    async def save(self, cursors: Mapping[str, int]) -> None:
        """See ``Keeper``."""
        fresh = self._cursors.with_suffix(".new")
        fresh.write_text(json.dumps(cursors))
        fresh.replace(self._cursors)

    async def append(self, webhook: str, lines: Sequence[str]) -> None:
        """See ``Keeper``."""
        del webhook
        for line in lines:
            self._dead.write(line)

    async def lines(self, webhook: str) -> Sequence[str]:
        """See ``Keeper``."""
        del webhook
        return [*self._dead.lines()]

    def close(self) -> None:
        """See ``Keeper``."""
        self._dead.close()


def _list(webhook: str) -> str:
    return f"webhooks:{webhook}"


def read_cursors(text: str) -> Mapping[str, int]:
    """The cursors in a text; none where it is none, as one that was cut off."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): at_ms for name, at_ms in found.items() if isinstance(at_ms, int)}
