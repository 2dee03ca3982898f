"""Facts about sandboxes that are written to the cluster in the background: bounded, merged per sandbox, retried.

They can wait, and the caller of a create cannot: in a herd of starts one write costs the others on its machine more
than everything else that readiness does. So they are written when no more sandboxes get ready, or have waited enough.

*Hints* spare a control plane that has lost its store a question: what the sandbox itself can say. They are written only
while nothing else happens, slowly. So a herd costs none of these writes, and neither does a sandbox that lives briefly.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.cluster import Cluster
from controlplane.lifecycle.record.transition import Transition

# A write is one small call to an API server that has better things to do: in a herd, to start the others.
WRITERS: Final = 2
REST_S: Final = 0.03
# With so many pending, claims come faster than writers that rest can write: what a lost store would forget counts more.
MANY_PENDING: Final = 200
# A herd is over when nothing was added for so long,
QUIET_S: Final = 0.1
# and what has waited for so long waits no more. Until it is written, only the sandbox itself can say it.
LATE_S: Final = 5.0
# Hints wait until nothing was added for so long, and one is written in so many seconds: 4,096 of them in ten minutes.
CALM_S: Final = 1.0
HINT_EVERY_S: Final = 0.15
# Guess: what a busy API server leaves unwritten in a minute. Without its facts a sandbox is adopted by its own answer.
MOST_PENDING: Final = 10_000
TRIES: Final = 8
FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 10.0
FLUSH_WITHIN_S: Final = 3.0


@dataclass(slots=True)
class _Pending:
    """Facts of one sandbox, and when they are late (the loop's time)."""

    facts: dict[str, str]
    late_s: float


class Annotations:
    """Writes facts, oldest first; ``run`` is its loop.

    Args:
        cluster: carries the facts beside each sandbox.
        claim_written: called with the id of a sandbox when the cluster knows its owner.
    """

    def __init__(self, cluster: Cluster, claim_written: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._claim_written = claim_written
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._hints: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._hinted = asyncio.Event()
        self._added_s = 0.0
        self._more = asyncio.Event()
        self._writing = 0
        self._flushing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._log = structlog.get_logger("annotations")

    @property
    def pending(self) -> int:
        """How many sandboxes have facts that are not written; hints do not count."""
        return len(self._pending) + self._writing

    async def write(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """Writes facts as the cluster wants it: at once where that is cheap, else before all others in the background.

        Raises:
            Problem: the cluster's, where it is written at once.
        """
        if self._cluster.annotates_behind:
            self.add(sandbox_id, facts, first=True)
        else:
            await self._cluster.annotate(sandbox_id, facts)
            self._written(sandbox_id, facts)

    def add(self, sandbox_id: str, facts: Mapping[str, str], *, first: bool = False) -> None:
        """Writes facts in the background; never waits. Beyond the bound the last ones are dropped.

        Args:
            sandbox_id: of which sandbox.
            facts: by name; a newer one takes an older one's place.
            first: before all others, also in a herd: the sandbox itself could not say so.
        """
        self._added_s = asyncio.get_running_loop().time()
        pending = self._pending.setdefault(sandbox_id, _Pending({}, self._added_s + LATE_S))
        pending.facts.update(facts)
        if first:
            pending.late_s = self._added_s
            self._pending.move_to_end(sandbox_id, last=False)
        if len(self._pending) > MOST_PENDING:
            dropped, _ = self._pending.popitem()
            self._log.error("too many facts are pending, the last ones are dropped", sandbox_id=dropped)
        self._idle.clear()
        self._more.set()

    def hint(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        """Writes facts that the sandbox itself can say, when there is time; never waits. Too many drop the oldest."""
        self._added_s = asyncio.get_running_loop().time()
        self._hints[sandbox_id] = {**facts}
        if len(self._hints) > MOST_PENDING:
            self._hints.popitem(last=False)
        self._hinted.set()

    def on(self, transition: Transition) -> None:
        """Drops what is pending of a sandbox whose end has begun."""
        if transition.after.end is not None:
            self.forget(transition.after.id)

    def forget(self, sandbox_id: str) -> None:
        """Drops what is pending of a sandbox; unknown ids are fine."""
        self._pending.pop(sandbox_id, None)
        self._hints.pop(sandbox_id, None)

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._writer(), name=f"annotations {number}")
            group.create_task(self._hint_writer(), name="annotations, hints")

    async def flush(self) -> None:
        """Waits a little until everything is written; call it while ``run`` runs."""
        self._flushing = True
        try:
            async with asyncio.timeout(FLUSH_WITHIN_S):
                await self._idle.wait()
        except TimeoutError:
            self._log.warning("facts not written to the cluster at the stop", sandboxes=self.pending)

    async def _writer(self) -> None:
        while True:
            await self._due()
            sandbox_id, pending = self._pending.popitem(last=False)
            self._writing += 1
            try:
                await self._annotate(sandbox_id, pending.facts)
            finally:
                self._writing -= 1
            if not self._flushing and len(self._pending) < MANY_PENDING:
                await asyncio.sleep(REST_S)

    async def _hint_writer(self) -> None:
        while True:
            await self._calm()
            sandbox_id, facts = self._hints.popitem(last=False)
            # What was added meanwhile is newer.
            if (more := self._pending.pop(sandbox_id, None)) is not None:
                facts |= more.facts
            await self._annotate(sandbox_id, facts)
            await asyncio.sleep(HINT_EVERY_S)

    async def _calm(self) -> None:
        """Returns when there is a hint, and nothing else was added or left for a while."""
        loop = asyncio.get_running_loop()
        while True:
            self._hinted.clear()
            if not self._hints:
                await self._hinted.wait()
                continue
            left_s = self._added_s + CALM_S - loop.time()
            if left_s <= 0 and not self.pending:
                return
            await asyncio.sleep(max(left_s, CALM_S))

    async def _due(self) -> None:
        """Returns when the first ones are to be written."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._pending:
                if not self._writing:
                    self._idle.set()
                self._more.clear()
                await self._more.wait()
            first = next(iter(self._pending.values()))
            left_s = min(self._added_s + QUIET_S, first.late_s) - loop.time()
            if left_s <= 0 or self._flushing:
                return
            await asyncio.sleep(left_s)

    async def _annotate(self, sandbox_id: str, facts: dict[str, str]) -> None:
        pause_s = FIRST_PAUSE_S
        for _ in range(TRIES):
            # A failure of one sandbox's write, whatever it is, must not stop the others'.
            try:
                await self._cluster.annotate(sandbox_id, facts)
            except Exception as error:
                why = str(error)
            else:
                self._written(sandbox_id, facts)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            # What was added meanwhile goes along.
            if (more := self._pending.pop(sandbox_id, None)) is not None:
                facts |= more.facts
        words = "facts not written to the cluster, given up: a lost store is rebuilt without them"
        self._log.error(words, sandbox_id=sandbox_id, tries=TRIES, detail=why)

    def _written(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        if "claim" in facts:
            self._claim_written(sandbox_id)
