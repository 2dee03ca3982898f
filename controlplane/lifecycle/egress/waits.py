"""Waits until the policy of a sandbox is in force, at whichever replica that is reported."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox


class Waits:
    """Wakes callers when their switch is in force, or its sandbox has ended."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[Sandbox], int]] = {}

    def on(self, transition: Transition) -> None:
        """Wakes those that wait for this record: an earlier switch that is told late is not theirs."""
        after = transition.after
        for future, revision in self._waiting.get(after.id, {}).items():
            applied = after.egress.in_force and after.egress.revision >= revision
            if (applied or after.end is not None) and not future.done():
                future.set_result(after)

    @contextmanager
    def waiting(self, sandbox_id: str, revision: int) -> Iterator[asyncio.Future[Sandbox]]:
        """What will have the record once this switch or a later one is in force, or it has ended."""
        future: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sandbox_id, {})[future] = revision
        try:
            yield future
        finally:
            del self._waiting[sandbox_id][future]
            if not self._waiting[sandbox_id]:
                del self._waiting[sandbox_id]
