"""Waiting for a Redis that starts beside its users."""

import asyncio
from typing import Final

import structlog
from redis.exceptions import ResponseError

from controlplane.errors import Problem
from controlplane.store.calls import Calls

AGAIN_S: Final = 0.5


async def loaded(calls: Calls, within_s: float) -> None:
    """Brings the scripts to a Redis; one that is not there yet is waited for, and that is said once.

    Raises:
        Problem: upstream_timeout, it does not answer in time, or, at once, it refuses us.
    """
    loop, log = asyncio.get_running_loop(), structlog.get_logger("store")
    began_s, told = loop.time(), False
    while True:
        try:
            await calls.load()
        except Problem as problem:
            # An answer is one: it is too old for the scripts, or forbids them.
            if isinstance(problem.__cause__, ResponseError) or loop.time() - began_s >= within_s:
                raise
            if not told:
                log.warning("waiting for Redis", at=calls.where, within_s=within_s, detail=problem.detail)
            told = True
        else:
            if told:
                log.info("Redis is there", at=calls.where, after_s=round(loop.time() - began_s, 1))
            return
        await asyncio.sleep(AGAIN_S)
