"""Taking ended sandboxes off the cluster: bounded, repeated until the cluster confirms. Nothing gates it."""

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final

import structlog

from controlplane.cluster import Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.model import Sandbox
from controlplane.model.states import Event

FIRST_RETRY_S: Final = 0.2
LAST_RETRY_S: Final = 30.0
# Longer than a busy node takes to stop what runs on it.
UNSTOPPED_S: Final = 120.0
# A cluster that is away fails thousands of stops at once: so many are logged, once each, then how many there were.
MOST_LOGGED: Final = 8


class Reclaimer:
    """Stops each ended sandbox in a task of ``group``; all callers that ask for it wait for the same confirmation.

    Args:
        cluster: runs the sandboxes.
        ledger: gets the confirmation.
        starts: the starts under way here, by sandbox: one that is unwinding is waited for before the stop.
        group: where the tasks run.
    """

    def __init__(
        self, cluster: Cluster, ledger: Ledger, starts: Mapping[str, asyncio.Task[None]], group: asyncio.TaskGroup
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._starts = starts
        self._group = group
        self._free = asyncio.Semaphore(cluster.stops_at_once)
        self._under_way: dict[str, asyncio.Task[Sandbox | None]] = {}
        self._began_s: dict[str, float] = {}
        self._failing: set[str] = set()  # those that were tried in vain
        self._most_failing = 0
        self._log = structlog.get_logger("reclaim")

    def on(self, transition: Transition) -> None:
        """Begins what the transition asks for; of other replicas' ends only where the start was under way here."""
        if Effect.STOP in transition.effects and (transition.here or transition.after.id in self._starts):
            self.begin(transition.after.id, transition.after)

    def begin(self, sandbox_id: str, known: Sandbox | None = None) -> None:
        """Begins unless it is under way; ``known`` is the record."""
        if sandbox_id in self._under_way:
            return
        start = self._starts.get(sandbox_id)
        # A start that has just failed ends its own sandbox, and then itself.
        start = None if start is asyncio.current_task() else start
        reclaiming = self._reclaim(sandbox_id, start, known)
        try:
            task = self._group.create_task(reclaiming, name=f"reclaim {sandbox_id}")
        except RuntimeError:
            # The group is closing, and the end is on record: the next comparison of records and cluster begins anew.
            reclaiming.close()
            return
        self._under_way[sandbox_id] = task
        self._began_s[sandbox_id] = asyncio.get_running_loop().time()

        def over(_: asyncio.Task[Sandbox | None]) -> None:
            del self._under_way[sandbox_id], self._began_s[sandbox_id]

        task.add_done_callback(over)

    def has(self, sandbox_id: str) -> bool:
        """Whether it is under way here."""
        return sandbox_id in self._under_way

    async def confirmed(self, sandbox: Sandbox, within_s: float) -> Sandbox | None:
        """Returns when the cluster has confirmed the end; at once when it has already.

        Returns:
            The record from then on, if that was here and now.

        Raises:
            Problem: upstream_timeout, not within ``within_s``; the reclamation goes on, and asking again is safe.
        """
        task = self._under_way.get(sandbox.id)
        if task is None:
            return None
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(task)
        except TimeoutError as error:
            detail = (
                f"{sandbox.id} has ended and its quota is free, but it was not confirmed within {within_s:g} s "
                "that nothing of it runs any more; that goes on"
            )
            # ``waited_ms``: a client does not repeat by itself what has waited until its own deadline.
            raise Problem(
                "upstream_timeout", detail, sandbox_id=sandbox.id, waited_ms=round(1000 * within_s)
            ) from error

    @property
    def unstopped(self) -> int:
        """How many the cluster has not confirmed for longer than a busy node takes."""
        before_s = asyncio.get_running_loop().time() - UNSTOPPED_S
        # In the order of their beginnings.
        return sum(1 for _ in itertools.takewhile(lambda began_s: began_s < before_s, self._began_s.values()))

    @property
    def under_way(self) -> set[asyncio.Task[Sandbox | None]]:
        """The reclamations that the cluster has not confirmed."""
        return set(self._under_way.values())

    async def _reclaim(
        self, sandbox_id: str, start: asyncio.Task[None] | None, known: Sandbox | None
    ) -> Sandbox | None:
        if start is not None:
            # ``Starts`` has cancelled it, unless its end was never heard of here. Not twice: a second cancel would
            # interrupt the clean-up of the first.
            if not start.cancelling():
                start.cancel()
            await asyncio.wait([start])
        pause_s = FIRST_RETRY_S
        try:
            while True:
                try:
                    return await self._stopped(sandbox_id, known)
                except Problem as problem:
                    self._failed(sandbox_id, f"{problem.code}: {problem.detail}")
                except Exception:
                    # One sandbox that cannot be taken off must not take the others down with it.
                    self._log.exception("ended sandbox is still on the cluster, retrying", sandbox_id=sandbox_id)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_RETRY_S)
        finally:
            self._recovered(sandbox_id)

    async def _stopped(self, sandbox_id: str, known: Sandbox | None) -> Sandbox | None:
        async with self._free:
            await self._cluster.stop(sandbox_id)
        return await self._ledger.take(sandbox_id, Event.CONFIRM, known=known)

    def _failed(self, sandbox_id: str, why: str) -> None:
        if len(self._failing) < MOST_LOGGED and sandbox_id not in self._failing:
            self._log.warning("ended sandbox is still on the cluster, retrying", sandbox_id=sandbox_id, detail=why)
        self._failing.add(sandbox_id)
        self._most_failing = max(self._most_failing, len(self._failing))

    def _recovered(self, sandbox_id: str) -> None:
        if sandbox_id not in self._failing:
            return
        self._failing.discard(sandbox_id)
        if not self._failing:
            self._log.info("all ended sandboxes are off the cluster again", most_at_once=self._most_failing)
            self._most_failing = 0
