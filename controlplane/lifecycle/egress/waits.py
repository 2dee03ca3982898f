"""Waits until the policy of a sandbox is in force, at whichever replica that is reported."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox


@dataclass(eq=False, slots=True)
class Wait:
    """What is heard of one sandbox from the moment on at which its caller begins to look.

    Attributes:
        heard: the latest record that has its policy in force, or has an end.
        revision: what is waited for; None: nothing yet.
        woken: its result is the first such record of this revision or a later one.
    """

    heard: Sandbox | None
    revision: int | None
    woken: asyncio.Future[Sandbox]

    def hear(self, after: Sandbox) -> None:
        """Takes in a record: an earlier switch that is told late is not this one's."""
        ended = after.end is not None
        if not ended and (not after.egress.in_force or _is_older(after, self.heard)):
            return
        self.heard = after
        self._wake()

    async def until(self, revision: int) -> Sandbox:
        """The record once this revision or a later one is in force, or it has ended."""
        self.revision = revision
        self._wake()
        return await self.woken

    def _wake(self) -> None:
        found = self.heard
        if found is None or self.revision is None or self.woken.done():
            return
        if found.end is not None or found.egress.revision >= self.revision:
            self.woken.set_result(found)


class Waits:
    """Wakes callers when their switch is in force, or its sandbox has ended."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[Wait]] = {}

    def on(self, transition: Transition) -> None:
        """Tells those that wait for this sandbox."""
        for wait in self._waiting.get(transition.after.id, ()):
            wait.hear(transition.after)

    @contextmanager
    def waiting(self, sandbox_id: str) -> Iterator[Wait]:
        """What hears of this sandbox while the block runs, so that no answer is missed that overtakes its question."""
        wait = Wait(None, None, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(sandbox_id, set()).add(wait)
        try:
            yield wait
        finally:
            self._waiting[sandbox_id].discard(wait)
            if not self._waiting[sandbox_id]:
                del self._waiting[sandbox_id]


def _is_older(after: Sandbox, heard: Sandbox | None) -> bool:
    return heard is not None and (heard.end is not None or after.egress.revision < heard.egress.revision)
