"""Waits at start-up for a Redis that is not reachable yet."""

import asyncio
from typing import Final

import structlog
from redis.exceptions import ResponseError

from controlplane.errors import Problem
from controlplane.store.calls import Calls

AGAIN_S: Final = 0.5


async def loaded(calls: Calls, within_s: float) -> None:
    """Loads the scripts into a Redis; waits for one that does not answer yet, and logs that once.

    Raises:
        Problem: upstream_timeout: not within ``within_s``; or at once if Redis answers with an error.
    """
    loop, log = asyncio.get_running_loop(), structlog.get_logger("store")
    began_s, told = loop.time(), False
    while True:
        try:
            await calls.load()
        except Problem as problem:
            # An error answer will not change by waiting: this Redis is too old for the scripts, or forbids them.
            if isinstance(problem.__cause__, ResponseError) or loop.time() - began_s >= within_s:
                raise
            if not told:
                log.warning("waiting for Redis", at=calls.where, within_s=within_s, detail=problem.detail)
            told = True
        else:
            if told:
                log.info("connected to Redis", at=calls.where, after_s=round(loop.time() - began_s, 1))
            return
        await asyncio.sleep(AGAIN_S)
