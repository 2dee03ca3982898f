"""The audit trail: takes entries, has them appended at once, and keeps the newest where operators read them."""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

import structlog

from controlplane.access import AuditOptions
from controlplane.errors import Problem
from controlplane.lifecycle.audit.entry import AuditEntry, AuditQuery, chosen
from controlplane.lifecycle.audit.files import AuditFile, AuditOutput, AuditStdout
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.telemetry import AuditLost, Metrics

# Entries that wait for the store: some seconds of the calls that a replica serves.
MOST_WAITING: Final = 8_192
AT_A_TIME: Final = 512
# From the last entry on.
KEPT_MS: Final = 90 * 86_400_000
# Between two writes: calls are many, and a write costs the store as much as a call.
PAUSE_S: Final = 0.1
_LIST: Final = "audit"


class AuditTrail:
    """Keeps audit entries; those that are not kept somewhere are counted, by where.

    Args:
        store: keeps the newest, for all replicas; one that is lost loses them.
        options: where entries go.
        metrics: count those that are lost.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, store: RecoveringStore, options: AuditOptions, metrics: Metrics) -> None:
        self._store, self._options, self._metrics = store, options, metrics
        self._file = None if options.file is None else AuditFile(options.file, options.file_bytes)
        self._outputs: list[AuditOutput] = [] if self._file is None else [self._file]
        self._outputs += [AuditStdout()] if options.stdout else []
        self._waiting = deque[str]()
        self._more = asyncio.Event()
        self._log = structlog.get_logger("audit")

    @property
    def on(self) -> bool:
        """Whether entries go anywhere."""
        return bool(self._outputs) or self._options.kept > 0

    def record(self, entry: AuditEntry) -> None:
        """Takes an entry. Cost: 10 us, and a write of a line."""
        line = entry.line
        for output in self._outputs:
            try:
                output.write(line)
            except OSError as error:
                self._lost("output", 1, str(error))
        if not self._options.kept:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._lost("store", 1, "the store is behind")
            return
        self._waiting.append(line)
        self._more.set()

    async def run(self) -> None:
        """Has the store keep what was taken, until it is cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._write()
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Has the store keep the rest."""
        while self._waiting:
            await self._write()
        if self._file is not None:
            self._file.close()
            self._outputs.remove(self._file)

    async def find(self, query: AuditQuery) -> list[AuditEntry]:
        """The newest entries that are asked for, oldest of them first.

        Raises:
            Problem: unsupported, where nothing is kept; the store does not answer; internal, the file cannot be read.

        Cost: a read of all that are kept.
        """
        if self._file is not None:
            try:
                return await _found(self._file.lines(), query)
            except OSError as error:
                raise Problem("internal", f"the audit entries cannot be read: {error}") from error
        if not self._options.kept:
            raise Problem("unsupported", "this installation keeps no audit entries for reading (audit.kept is 0)")
        return await _found(iter(await self._store.lines(_LIST, self._options.kept)), query)

    async def _write(self) -> None:
        lines = [self._waiting.popleft() for _ in range(min(AT_A_TIME, len(self._waiting)))]
        try:
            await self._store.append(_LIST, lines, self._options.kept, KEPT_MS)
        except Problem as away:
            self._lost("store", len(lines), away.detail)

    def _lost(self, where: AuditLost, entries: int, why: str) -> None:
        self._metrics.audit_lost(where, entries)
        self._log.error("audit entries lost", where=where, entries=entries, detail=why)


async def _found(lines: Iterator[str], query: AuditQuery) -> list[AuditEntry]:
    """Those that are asked for, oldest first; other calls have their turn in between."""
    found: list[AuditEntry] = []
    while some := [*islice(lines, AT_A_TIME)]:
        found = [*found, *chosen(some, query)][-query.most :]
        await asyncio.sleep(0)
    return sorted(found, key=lambda entry: entry.at_ms)
