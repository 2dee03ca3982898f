"""``SilenceNotes``: which sandboxes do not answer, for all replicas: only the one whose turn it is probes them."""

import json
from collections.abc import Mapping
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.health.silence import GAP_MS
from controlplane.lifecycle.record.recovering_store import RecoveringStore

# A node that is cut off silences many at once: lists tell those that have been silent longest.
MOST: Final = 500
# Lists may be asked for many times a second.
READ_EVERY_MS: Final = 1_000
_NAME: Final = "silent"


class SilenceNotes:
    """A note in the store, which is gone soon after the last round of probes. No list fails without it."""

    def __init__(self, store: RecoveringStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._read: Mapping[str, int] = {}
        self._read_at_ms = 0
        self._log = structlog.get_logger("silence")

    async def write(self, since_ms: Mapping[str, int]) -> None:
        """Keeps what a round has found, in place of what the last one has.

        Args:
            since_ms: sandbox id -> when the first of its failed probes was made, in Unix time.

        Cost: a call to the store, and one more where there is something to write.
        """
        kept = dict(sorted(since_ms.items(), key=lambda one: one[1])[:MOST])
        text = json.dumps({"at_ms": self._clock.now_ms(), "since_ms": kept}) if kept else ""
        try:
            await self._store.change_note(_NAME, lambda before: text if text or before else None, GAP_MS)
        except Problem as problem:
            self._log.warning("lists do not tell which sandboxes are silent", detail=problem.detail)
        self._read_at_ms = 0

    async def since_ms(self) -> Mapping[str, int]:
        """Sandbox id -> when the first of its failed probes was made. Cost: a call to the store, once a second."""
        now_ms = self._clock.now_ms()
        if now_ms - self._read_at_ms >= READ_EVERY_MS:
            self._read_at_ms = now_ms
            try:
                text = await self._store.note(_NAME)
                self._read = json.loads(text)["since_ms"] if text else {}
            except Problem as problem:
                self._log.warning("it is not known which sandboxes are silent", detail=problem.detail)
                self._read = {}
        return self._read
