"""``CommitKeys``: that a commit with a key is done once, at whatever replica it is asked for.

The store has for each key who is at work on it, or what has come of it. A replica that does not say for a while that it
is still at work has ended; what has failed left nothing. In both cases the next one with the key tries again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final
from uuid import uuid4

import structlog

from controlplane.cluster import Committed
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore

# How long a repetition of a key is answered what the first call was.
KEPT_MS: Final = 600_000
AT_WORK_MS: Final = 30_000
SAYS_EVERY_S: Final = 10.0
LOOKS_EVERY_S: Final = 0.5

Outcome = Committed | Problem
Work = Callable[[], Awaitable[Outcome]]


class CommitKeys:
    """The keys of all owners, in the store."""

    def __init__(self, store: RecoveringStore) -> None:
        self._store = store
        self._log = structlog.get_logger("commits")

    async def once(self, owner: str, key: str, asked: Sequence[object], work: Work) -> Outcome:
        """Does some work unless it is done, or being done; then what came of that.

        Args:
            owner: whose key it is.
            key: the idempotency key.
            asked: what the work is to do, in JSON's types.
            work: is bounded by its caller's time, and so is the wait for another one.

        Raises:
            Problem: conflict: the key was used for something else; upstream_timeout: the store does not answer.
        """
        name, asked = f"commit:{owner}\n{key}", list(asked)
        while True:
            text = await self._store.note(name)
            there: dict[str, Any] = json.loads(text) if text else {}
            if there and there["asked"] != asked:
                detail = "the idempotency key was used for another commit"
                raise Problem("conflict", detail, reason="other_parameters", field="Idempotency-Key")
            if "made" in there:
                return Committed(**{**there["made"], "skipped": tuple(there["made"]["skipped"])})
            if there:
                await asyncio.sleep(LOOKS_EVERY_S)
                continue
            mine = json.dumps({"asked": asked, "at_work": uuid4().hex})
            if await self._store.write_note(name, mine, AT_WORK_MS):
                return await self._done(name, mine, asked, work)

    async def _done(self, name: str, mine: str, asked: Sequence[object], work: Work) -> Outcome:
        outcome: Outcome | None = None
        try:
            async with self._at_work(name, mine):
                outcome = await work()
        finally:
            made = {"asked": asked, "made": asdict(outcome)} if isinstance(outcome, Committed) else None
            await self._keep(name, mine, "" if made is None else json.dumps(made))
        return outcome

    @asynccontextmanager
    async def _at_work(self, name: str, mine: str) -> AsyncIterator[None]:
        saying = asyncio.create_task(self._say(name, mine), name=f"at work on {name}")
        try:
            yield
        finally:
            saying.cancel()
            await asyncio.wait([saying])

    async def _say(self, name: str, mine: str) -> None:
        while True:
            await asyncio.sleep(SAYS_EVERY_S)
            try:
                await self._store.write_note(name, mine, AT_WORK_MS, before=mine)
            except Problem as problem:
                self._log.warning("a commit is at work and cannot say so", detail=problem.detail)

    async def _keep(self, name: str, mine: str, text: str) -> None:
        try:
            await self._store.write_note(name, text, KEPT_MS, before=mine)
        except Problem as problem:
            # The image is there; only a repetition of the call is not answered with it.
            self._log.warning("the outcome of a commit is not kept", detail=problem.detail)
