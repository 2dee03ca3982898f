"""Retries with backoff, for background work, while a part of the platform does not answer; bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from controlplane.errors import Problem

FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 5.0
# With the pauses between them about half a minute: as long as Kubernetes takes to start Redis on another node.
TRIES: Final = 9

T = TypeVar("T")


async def retried_while_away(call: Callable[[], Awaitable[T]], tries: int = TRIES) -> T:
    """The result of ``call``, which is retried while it fails with upstream_timeout.

    Raises:
        Problem: any other code at once; upstream_timeout after the last try.
    """
    pause_s = FIRST_PAUSE_S
    for _ in range(tries - 1):
        try:
            return await call()
        except Problem as problem:
            if problem.code != "upstream_timeout":
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
    return await call()
