"""Facts that are written to the cluster after the sandbox is announced: bounded, one write for many, repeated.

They can wait, and who waits for a create cannot: in a herd one write costs all the others of its machine more than all
of a readiness does. So they are written when no more sandboxes get ready, or have waited long enough.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.cluster import Cluster

# A write is one small call to a server that has better things to do: in a herd, to start the others.
AT_ONCE: Final = 2
REST_S: Final = 0.03
# With so many behind, claims come faster than rested writers write: what a lost store would take with it counts more.
MUCH_BEHIND: Final = 200
# A herd is over when nothing was added for so long,
QUIET_S: Final = 0.1
# and what has waited for so long waits no more. Until it is written, a lost store has only the sandbox's own word.
LATE_S: Final = 5.0
# Guess: what a busy server leaves behind in a minute. Without its facts a sandbox is adopted by its own word.
MOST_BEHIND: Final = 10_000
TRIES: Final = 8
FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 10.0
FLUSH_WITHIN_S: Final = 3.0


@dataclass(slots=True)
class _Note:
    """Facts of one sandbox, and when they are late (the loop's time)."""

    facts: dict[str, str]
    late_s: float


class Notes:
    """Writes facts behind, oldest first; ``run`` is its loop.

    Args:
        written: told whose facts were written, and which.
    """

    def __init__(self, cluster: Cluster, written: Callable[[str, Mapping[str, str]], None]) -> None:
        self._cluster = cluster
        self._told = written
        self._notes: OrderedDict[str, _Note] = OrderedDict()
        self._added_s = 0.0
        self._more = asyncio.Event()
        self._writing = 0
        self._flushing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._log = structlog.get_logger("notes")

    @property
    def behind(self) -> int:
        """How many sandboxes have facts that are not written."""
        return len(self._notes) + self._writing

    def write(self, sandbox_id: str, facts: Mapping[str, str], *, soon: bool = False) -> None:
        """Adds facts; never waits. Beyond the bound the last ones are dropped.

        Args:
            sandbox_id: whose.
            facts: by name; a newer one takes an older one's place.
            soon: before all others, whoever gets ready: the sandbox itself could not say so.
        """
        self._added_s = asyncio.get_running_loop().time()
        note = self._notes.setdefault(sandbox_id, _Note({}, self._added_s + LATE_S))
        note.facts.update(facts)
        if soon:
            note.late_s = self._added_s
            self._notes.move_to_end(sandbox_id, last=False)
        if len(self._notes) > MOST_BEHIND:
            dropped, _ = self._notes.popitem()
            self._log.error("facts dropped", sandbox_id=dropped, behind=MOST_BEHIND)
        self._idle.clear()
        self._more.set()

    def forget(self, sandbox_id: str) -> None:
        """Its end has begun: nobody will ask."""
        self._notes.pop(sandbox_id, None)

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
            await self._due()
            sandbox_id, note = self._notes.popitem(last=False)
            self._writing += 1
            try:
                await self._written(sandbox_id, note.facts)
            finally:
                self._writing -= 1
            if not self._flushing and len(self._notes) < MUCH_BEHIND:
                await asyncio.sleep(REST_S)

    async def _due(self) -> None:
        """Returns when the first note is to be written."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._notes:
                if not self._writing:
                    self._idle.set()
                self._more.clear()
                await self._more.wait()
            first = next(iter(self._notes.values()))
            left_s = min(self._added_s + QUIET_S, first.late_s) - loop.time()
            if left_s <= 0 or self._flushing:
                return
            await asyncio.sleep(left_s)

    async def _written(self, sandbox_id: str, facts: dict[str, str]) -> None:
        pause_s = FIRST_PAUSE_S
        for _ in range(TRIES):
            # One sandbox's facts must not stop the others'.
            try:
                await self._cluster.annotate(sandbox_id, facts)
            except Exception as error:
                why = str(error)
            else:
                self._told(sandbox_id, facts)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            # What has come meanwhile goes along.
            if (more := self._notes.pop(sandbox_id, None)) is not None:
                facts |= more.facts
        self._log.error("facts not written", sandbox_id=sandbox_id, detail=why)
