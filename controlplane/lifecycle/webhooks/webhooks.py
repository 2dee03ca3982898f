"""All endpoints: reads the events once for all of them, and keeps how far each is."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.event_board import AT_A_TIME, OVERLAP_MS, EventBoard
from controlplane.lifecycle.record.cloud_event import cloud_event
from controlplane.lifecycle.record.events import SandboxEvent
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.webhooks.dead_letter import DeadLetter
from controlplane.lifecycle.webhooks.keeper import FileKeeper, Keeper, StoreKeeper
from controlplane.lifecycle.webhooks.lane import Lane
from controlplane.telemetry import Metrics
from controlplane.webhooks import Endpoint, Letter, Poster, WebhookOptions

# Between two writes of how far the endpoints are: what was sent since the last one is sent again after a crash.
KEEP_EVERY_S: Final = 5.0


class Webhooks:
    """Posts events to endpoints, from where each one was, in order; each at least once, or it is a dead letter.

    Args:
        options: the endpoints.
        poster: sends requests.
        board: tells what happens.
        store: keeps how far they are, unless the options name a folder.
        clock: the time of day.
        metrics: count what becomes of events.

    Raises:
        OSError: the files in the folder cannot be written.
    """

    def __init__(
        self,
        options: WebhookOptions,
        poster: Poster,
        board: EventBoard,
        store: RecoveringStore,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._options, self._poster, self._board = options, poster, board
        self._clock, self._metrics = clock, metrics
        self._keeper: Keeper = StoreKeeper(store) if options.folder is None else FileKeeper(options.folder)
        self._lanes: list[Lane] = []
        self._told_ms = 0
        self._stopped = set[str]()
        self._log = structlog.get_logger("webhooks")

    @property
    def levels(self) -> Mapping[str, tuple[int, int]]:
        """Of each endpoint how many events wait, and the age of the oldest (ms); empty where another replica sends."""
        now_ms = self._clock.now_ms()
        return {one.endpoint.name: (len(one.outbox), one.outbox.age_ms(now_ms)) for one in self._lanes}

    async def run(self) -> None:
        """Sends until it is cancelled, or this replica's stream of events breaks off: then it may be begun again.

        Raises:
            Problem: the store does not answer.
            OSError: the files cannot be read.
        """
        cursors, now_ms = await self._keeper.load(), self._clock.now_ms()
        self._lanes = [self._lane(one, cursors.get(one.name), now_ms) for one in self._options.endpoints]
        # Until the past is read no cursor moves on.
        self._told_ms = 0
        self._stopped.clear()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one.run(), name=f"webhook {one.endpoint.name}") for one in self._lanes]
                tasks.append(group.create_task(self._keep(), name="webhooks' cursors"))
                await self._read(min(one.cursor_ms for one in self._lanes))
                for task in tasks:
                    task.cancel()
        finally:
            try:
                await self._kept()
            finally:
                self._lanes = []

    def close(self) -> None:
        """Closes the files."""
        self._keeper.close()

    async def dead(self, webhook: str | None, after_ms: int, most: int) -> Sequence[DeadLetter]:
        """The newest dead letters that are kept, oldest first.

        Args:
            webhook: of this endpoint; None: of all.
            after_ms: given up later than this (Unix ms).
            most: not more than these.

        Raises:
            Problem: not_found, there is no such endpoint; the store does not answer; internal, a file cannot be read.
        """
        there = [one.name for one in self._options.endpoints]
        names = [one for one in there if webhook in (None, one)]
        if not names:
            raise Problem("not_found", f"there is no webhook {webhook!r}; there are {', '.join(there)}")
        try:
            lines = dict.fromkeys([line for name in names for line in await self._keeper.lines(name)])
        except OSError as error:
            raise Problem("internal", f"the dead letters cannot be read: {error}") from error
        found = [one for line in lines if (one := DeadLetter.read(line)) is not None]
        asked = [one for one in found if one.webhook in names and one.at_ms > after_ms]
        return sorted(asked, key=lambda one: one.at_ms)[-most:]

    async def _read(self, after_ms: int) -> None:
        told = self._board.listen(None, {}, after_ms, follow=True, of_platform=True)
        try:
            async with aclosing(told):
                while (some := await anext(told, None)) is not None:
                    now_ms = self._clock.now_ms()
                    await self._hand_out(some)
                    self._told_ms = now_ms
        except Problem as problem:
            self._log.warning("webhooks hear of no events, retrying", detail=problem.detail)

    async def _hand_out(self, events: Sequence[SandboxEvent]) -> None:
        """Gives each event to those that want it, written once; others have their turn in between."""
        lanes = [(one, one.first(events)) for one in self._lanes]
        for number, event in enumerate(events):
            takers = [lane for lane, first in lanes if number >= first and lane.wants(event)]
            if takers:
                letter = Letter(event.id, event.at_ms, cloud_event(event).encode())
                for lane in takers:
                    lane.put(letter)
            if number % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            await self._kept()

    async def _kept(self) -> None:
        # Dead letters first: what is behind a cursor is not looked at again.
        try:
            for lane in self._lanes:
                await self._bury(lane)
            await self._keeper.save({one.endpoint.name: one.settled_ms(self._told_ms) for one in self._lanes})
        except (Problem, OSError) as away:
            self._log.warning("it is not kept how far webhooks are, retrying", detail=str(away))

    async def _bury(self, lane: Lane) -> None:
        name, now_ms, lines = lane.endpoint.name, self._clock.now_ms(), list[str]()
        for dead in lane.outbox.dead_letters():
            self._metrics.webhook_events(name, dead.why, dead.events)
            # What comes for an endpoint that has gone is counted, and would leave no place for other letters.
            if dead.why != "gone" or name not in self._stopped:
                entry = DeadLetter.of(name, now_ms, dead)
                told = {"webhook": name, "why": dead.why, "events": dead.events, "detail": dead.detail}
                self._log.error("webhooks given up", **told, from_ms=dead.from_ms, to_ms=dead.to_ms)
                lines.append(entry.line)
            if dead.why == "gone":
                self._stopped.add(name)
        if lines:
            await self._keeper.append(name, lines)

    def _lane(self, endpoint: Endpoint, cursor_ms: int | None, now_ms: int) -> Lane:
        """The way to an endpoint; to one that is new, from now on."""
        since_ms = now_ms if cursor_ms is None else cursor_ms - OVERLAP_MS
        lane = Lane(endpoint, since_ms, self._poster, self._clock, self._metrics)
        lane.cursor_ms = now_ms if cursor_ms is None else cursor_ms
        return lane
