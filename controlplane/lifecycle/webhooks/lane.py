"""The way to one endpoint: what it is sent, one request after the other, beside all others."""

import asyncio
import random
from collections.abc import Sequence

import structlog

from controlplane.clock import Clock
from controlplane.lifecycle.record.events import SandboxEvent
from controlplane.telemetry import Metrics
from controlplane.webhooks import Answer, Batch, Endpoint, Letter, Outbox, Poster, signed
from controlplane.webhooks.outbox import MOST_EVENTS


class Lane:
    """Sends one endpoint its events.

    Args:
        endpoint: where it leads.
        since_ms: events before that are not for it (Unix ms).
        poster: sends requests.
        clock: for what is signed and when something is given up.
        metrics: count what was sent.
    """

    def __init__(self, endpoint: Endpoint, since_ms: int, poster: Poster, clock: Clock, metrics: Metrics) -> None:
        self.endpoint, self._since_ms = endpoint, since_ms
        self._poster, self._clock, self._metrics = poster, clock, metrics
        self.outbox = Outbox(endpoint.batch, endpoint.give_up_ms)
        self.cursor_ms = since_ms
        """Until when everything is settled, as it was kept last."""
        self._more = asyncio.Event()
        self._log = structlog.get_logger("webhooks")

    def settled_ms(self, told_ms: int) -> int:
        """Until when everything is settled (Unix ms); ``told_ms``: until when all was put in. Cost: O(waiting)."""
        self.cursor_ms = max(self.cursor_ms, self.outbox.settled_ms(told_ms))
        return self.cursor_ms

    def wants(self, event: SandboxEvent) -> bool:
        """Whether an event is for this endpoint."""
        return event.at_ms >= self._since_ms and self.endpoint.wants(event.sandbox.owner, event.kind)

    def first(self, events: Sequence[SandboxEvent]) -> int:
        """From which of them on it takes any: of a long past as many as may wait; the others are dead letters."""
        if len(events) <= MOST_EVENTS:
            return 0
        wanted = [number for number, one in enumerate(events) if self.wants(one)]
        missed = wanted[:-MOST_EVENTS]
        if not missed:
            return 0
        self.outbox.missed(len(missed), events[missed[0]].at_ms, events[missed[-1]].at_ms)
        return missed[-1] + 1

    def put(self, letter: Letter) -> None:
        """Takes an event in."""
        self.outbox.put(letter, self._clock.now_ms())
        self._more.set()

    async def run(self) -> None:
        """Sends what comes, until it is cancelled."""
        while True:
            due_ms = self.outbox.due_ms()
            if due_ms is None:
                self._more.clear()
                await self._more.wait()
            elif (pause_ms := due_ms - self._clock.now_ms()) > 0:
                await asyncio.sleep(pause_ms / 1000)
            else:
                await self._send(self.outbox.take())

    async def _send(self, batch: Batch) -> None:
        if batch.attempt > 1:
            self._metrics.webhook_retried(self.endpoint.name)
        body = batch.body
        headers = signed(self.endpoint.keys, batch.id, self._clock.now_ms() // 1000, body)
        answer = await self._poster.post(self.endpoint, {**headers, "content-type": batch.media_type}, body)
        taken = self.outbox.settle(answer, self._clock.now_ms(), random.random())  # noqa: S311 - it spreads retries
        if taken:
            self._metrics.webhook_events(self.endpoint.name, "sent", taken)
        self._tell(answer, batch)

    def _tell(self, answer: Answer, batch: Batch) -> None:
        if answer.verdict == "taken":
            if batch.attempt > 1:
                self._log.info("a webhook is taken again", webhook=self.endpoint.name, attempts=batch.attempt)
        elif batch.attempt == 1 or self.outbox.stopped:
            what = "an endpoint wants no webhooks any more" if self.outbox.stopped else "a webhook is not taken"
            self._log.warning(what, webhook=self.endpoint.name, detail=answer.detail, waiting=len(self.outbox))
