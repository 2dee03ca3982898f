"""Facts that are written to the cluster after the sandbox is announced: bounded, one write for many, repeated."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from controlplane.cluster import Cluster

# A write is one small call to a server that has better things to do: in a herd, to start the others.
AT_ONCE: Final = 2
REST_S: Final = 0.03
# Guess: what a busy server leaves behind in a minute. Without its facts a sandbox is adopted by its own word.
MOST_BEHIND: Final = 10_000
TRIES: Final = 8
FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 10.0
FLUSH_WITHIN_S: Final = 3.0


class Notes:
    """Writes facts behind, oldest first; ``run`` is its loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._facts: dict[str, dict[str, str]] = {}
        self._more = asyncio.Event()
        self._writing = 0
        self._flushing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._log = structlog.get_logger("notes")

    @property
    def behind(self) -> int:
        """How many sandboxes have facts that are not written."""
        return len(self._facts) + self._writing

    def write(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """Adds facts; never waits. Beyond the bound the oldest sandbox's are dropped."""
        self._facts.setdefault(sandbox_id, {}).update(facts)
        if len(self._facts) > MOST_BEHIND:
            dropped = next(iter(self._facts))
            del self._facts[dropped]
            self._log.error("facts dropped", sandbox_id=dropped, behind=MOST_BEHIND)
        self._idle.clear()
        self._more.set()

    def forget(self, sandbox_id: str) -> None:
        """Its end has begun: nobody will ask."""
        self._facts.pop(sandbox_id, None)

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._writer(), name=f"notes {number}")

    async def flush(self) -> None:
        """Waits a little until everything is written; call it while ``run`` runs."""
        self._flushing = True
        try:
            async with asyncio.timeout(FLUSH_WITHIN_S):
                await self._idle.wait()
        except TimeoutError:
            self._log.warning("facts left unwritten", sandboxes=self.behind)

    async def _writer(self) -> None:
        while True:
            while not self._facts:
                if not self._writing:
                    self._idle.set()
                self._more.clear()
                await self._more.wait()
            sandbox_id = next(iter(self._facts))
            facts = self._facts.pop(sandbox_id)
            self._writing += 1
            try:
                await self._written(sandbox_id, facts)
            finally:
                self._writing -= 1
            if not self._flushing:
                await asyncio.sleep(REST_S)

    async def _written(self, sandbox_id: str, facts: dict[str, str]) -> None:
        pause_s = FIRST_PAUSE_S
        for _ in range(TRIES):
            # One sandbox's facts must not stop the others'.
            try:
                await self._cluster.annotate(sandbox_id, facts)
            except Exception as error:
                why = str(error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            # What has come meanwhile goes along.
            facts |= self._facts.pop(sandbox_id, {})
        self._log.error("facts not written", sandbox_id=sandbox_id, detail=why)
