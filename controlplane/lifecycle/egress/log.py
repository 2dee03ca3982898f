"""The log of attempts of each sandbox: the newest ones, kept in the store, also for a day after its end."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from controlplane.egress import EgressAttempt, read_attempt
from controlplane.errors import Problem
from controlplane.lifecycle.egress import messages
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.telemetry import Metrics
from controlplane.wire import egress_pb2 as wire

# Of one sandbox: some 250 bytes each.
MOST_ATTEMPTS: Final = 500
# From the last attempt on: as long as tombstones are kept, and what a sandbox may live silently before its end.
KEPT_MS: Final = 48 * 3_600_000
# How many logs are written side by side.
TOGETHER: Final = 64
_ID: Final = re.compile(r"sb-[0-9a-z]{1,60}")


class AttemptLog:
    """Keeps attempts.

    Args:
        store: where they are kept; a store that is lost loses them.
        metrics: count those that it does not take.
    """

    def __init__(self, store: RecoveringStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._log = structlog.get_logger("egress")

    async def take(self, attempts: Iterable[wire.Attempt]) -> None:
        """Adds attempts to the logs of their sandboxes; those that the store does not take are lost, and said so."""
        lines: defaultdict[str, list[str]] = defaultdict(list)
        for attempt in attempts:
            if _ID.fullmatch(attempt.sandbox_id) and (read := messages.attempt(attempt)) is not None:
                lines[attempt.sandbox_id].append(read.text)
        logs = [*lines.items()]
        for at in range(0, len(logs), TOGETHER):
            await asyncio.gather(*(self._append(*one) for one in logs[at : at + TOGETHER]))

    async def newest(self, sandbox_id: str, most: int) -> Sequence[EgressAttempt]:
        """The newest attempts of a sandbox, oldest of them first.

        Raises:
            Problem: the store does not answer.
        """
        lines = await self._store.lines(_name(sandbox_id), most)
        return [one for line in lines if (one := read_attempt(line)) is not None]

    async def _append(self, sandbox_id: str, lines: Sequence[str]) -> None:
        try:
            await self._store.append(_name(sandbox_id), lines[-MOST_ATTEMPTS:], MOST_ATTEMPTS, KEPT_MS)
        except Problem as away:
            self._metrics.egress_attempts_lost(len(lines))
            self._log.error("egress attempts lost", sandbox_id=sandbox_id, attempts=len(lines), detail=away.detail)


def _name(sandbox_id: str) -> str:
    return f"egress/log/{sandbox_id}"
