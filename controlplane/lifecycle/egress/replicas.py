"""Which egress replicas are connected to any control plane: each writes its own into a note that all read."""

import asyncio
import json
from collections.abc import Mapping
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.egress.assignments import EgressAssignments
from controlplane.lifecycle.record.recovering_store import RecoveringStore

NOTE: Final = "egress/replicas"
LOOK_EVERY_S: Final = 1.0
# What a control plane has written holds so long: one that stops without a word gives its replicas time to connect to
# another one, so that their sandboxes need not move and come back.
HOLDS_MS: Final = 10_000

# Id of the egress replica -> the control plane that it is connected to, and until when that holds (Unix ms).
_Held = Mapping[str, tuple[str, int]]


class LiveReplicas:
    """Tells the assignments which replicas there are; ``run`` is its loop.

    Args:
        assignments: knows those that are connected here.
        store: has the note, if it is shared; else there are no others.
        replica: this control plane's name.
    """

    def __init__(self, assignments: EgressAssignments, store: RecoveringStore, clock: Clock, replica: str) -> None:
        self._assignments = assignments
        self._store = store
        self._clock = clock
        self._replica = replica
        self._changed = asyncio.Event()
        self._log = structlog.get_logger("egress")

    def changed(self) -> None:
        """Looks at once, since a replica has connected here or has gone."""
        self._changed.set()

    async def run(self) -> None:
        """ConsoleViews every second until cancelled."""
        while True:
            await self.look()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()

    async def look(self) -> None:
        """Writes which replicas are connected here, and reads the others'. Cost: two calls to the store.

        While the store does not answer, those of others are taken to be as they were.
        """
        here = frozenset(self._assignments.connected)
        if not self._store.shared:
            self._assignments.set_live(here)
            return
        held: _Held = {}

        def told(before: str) -> str | None:
            nonlocal held
            held = self._held(before)
            return _text(held) if held != _read(before) or here else None

        try:
            await self._store.change_note(NOTE, told, HOLDS_MS)
        except Problem as away:
            self._log.warning("not known which egress replicas there are elsewhere", detail=away.detail)
            return
        # As they are now: some may have come or gone while the store was asked.
        here = frozenset(self._assignments.connected)
        elsewhere = {one for one, (by, _) in held.items() if by != self._replica}
        self._assignments.set_live(here | elsewhere)

    def _held(self, text: str) -> dict[str, tuple[str, int]]:
        now_ms = self._clock.now_ms()
        others = {
            one: (by, until_ms)
            for one, (by, until_ms) in _read(text).items()
            if by != self._replica and until_ms > now_ms
        }
        return others | dict.fromkeys(self._assignments.connected, (self._replica, now_ms + HOLDS_MS))


def _read(text: str) -> _Held:
    try:
        return {str(one): (str(by), int(until_ms)) for one, (by, until_ms) in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _text(held: _Held) -> str:
    return json.dumps(held, sort_keys=True) if held else ""
