"""Waits until the policy of a sandbox is in force, at whichever replica that is reported."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox


class Waits:
    """Wakes callers when a switch is in force, or its sandbox has ended."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[Sandbox]]] = {}

    def on(self, transition: Transition) -> None:
        """Wakes those that wait for this record."""
        after = transition.after
        if after.id in self._waiting and (after.end is not None or after.egress.in_force):
            for future in self._waiting.pop(after.id):
                if not future.done():
                    future.set_result(after)

    @contextmanager
    def waiting(self, sandbox_id: str) -> Iterator[asyncio.Future[Sandbox]]:
        """What will have the record once its last switch is in force, or it has ended; begin before the switch."""
        future: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sandbox_id, set()).add(future)
        try:
            yield future
        finally:
            self._waiting.get(sandbox_id, set()).discard(future)
            if not self._waiting.get(sandbox_id, True):
                del self._waiting[sandbox_id]
