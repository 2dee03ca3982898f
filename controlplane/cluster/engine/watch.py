"""Watches for deaths: reads the engine's event stream, and inspects all sandboxes after a lost connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog

from controlplane.cluster.engine.client import EngineClient
from controlplane.cluster.engine.containers import LABEL_INSTALLATION
from controlplane.cluster.engine.deaths import exit_of
from controlplane.cluster.engine.live_sandboxes import LiveSandboxes
from controlplane.cluster.protocol import Death
from controlplane.errors import Problem

FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0

Judge = Callable[[str], Awaitable[Death | None]]


class Watch:
    """Yields deaths without end. None is missed, since all sandboxes are inspected after the stream was opened.

    Args:
        judge: inspects a sandbox on the engine and returns its death, if it is dead.
        live: the sandboxes that should be alive.
    """

    def __init__(self, client: EngineClient, installation: str, judge: Judge, live: LiveSandboxes) -> None:
        self._client = client
        filters = {"type": ["container"], "label": [f"{LABEL_INSTALLATION}={installation}"]}
        self._query = {"filters": json.dumps(filters)}
        self._judge = judge
        self._live = live
        self._log = structlog.get_logger("watch")

    async def deaths(self) -> AsyncIterator[Death]:
        """See ``Sandboxes.watch``."""
        now_s = asyncio.get_running_loop().time
        pause_s = FIRST_RETRY_S
        while True:
            began_s = now_s()
            try:
                async for death in self._one_stream():
                    pause_s = FIRST_RETRY_S
                    yield death
                # Without a death too: one that ends at once again and again is no success.
                if now_s() - began_s >= LAST_RETRY_S:
                    pause_s = FIRST_RETRY_S
                self._log.info("the engine closed its event stream, reconnecting")
            except Problem as problem:
                self._log.warning("the engine's event stream failed, reconnecting", detail=problem.detail)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_RETRY_S)

    async def _one_stream(self) -> AsyncIterator[Death]:
        async with self._client.lines("GET", "events", self._query) as events:
            self._live.mark_all_unconfirmed()
            for sandbox_id in self._live.alive():
                if (death := await self._judge(sandbox_id)) is not None:
                    yield death
            async for event in events:
                seen = exit_of(event)
                if seen is None:
                    continue
                self._live.mark_unconfirmed(seen.sandbox_id)
                if seen.sandbox_id not in self._live:
                    continue  # stopped by the control plane, or judged when its start is over
                death = await self._judge(seen.sandbox_id)
                if death is None and seen.sure:
                    # The engine may send the event before an inspection shows the exit.
                    death = Death(seen.sandbox_id, "sandbox_lost", seen.detail)
                if death is not None:
                    yield death
