"""When calls begin, and what each of them met. The times of open loops are lists of seconds."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass


def staggered(count: int, every_s: float) -> list[float]:
    """Evenly apart."""
    return [number * every_s for number in range(count)]


def burst(count: int) -> list[float]:
    """All in the same instant."""
    return [0.0] * count


def poisson(count: int, per_second: float, seed: int = 6) -> list[float]:
    """At random with a mean rate: independent callers. The same for the same seed."""
    draw, at, times = random.Random(seed), 0.0, []  # noqa: S311 - a load, not a secret
    for _ in range(count):
        at += draw.expovariate(per_second)
        times.append(at)
    return times


@dataclass(frozen=True, slots=True)
class Met:
    """What one call met.

    Attributes:
        ms: from when the call was due (of an open loop: not from when it was sent) to its answer.
        answer: what the call returned.
        late_ms: how long after it was due this process began it; part of `ms`.
    """

    ms: float
    answer: object
    late_ms: float = 0.0


def milliseconds(met: Iterable[Met]) -> list[float]:
    """Return how long each call took, ms."""
    return [one.ms for one in met]


async def open_loop(times: Sequence[float], call: Callable[[int], Awaitable[object]]) -> list[Met]:
    """Call at each of the times, whether earlier calls have been answered or not; in the order of the times.

    Args:
        times: seconds from now, ascending.
        call: gets its number.
    Cancel safety: calls that are under way are cancelled, and no more begin.
    """
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[Met]] = []
    over = threading.Event()
    began = time.perf_counter()

    async def one(number: int, at_s: float) -> Met:
        late_ms = (time.perf_counter() - began - at_s) * 1e3
        answer = await call(number)
        return Met((time.perf_counter() - began - at_s) * 1e3, answer, late_ms)

    def begin(group: asyncio.TaskGroup, number: int, at_s: float) -> None:
        if not over.is_set():
            tasks.append(group.create_task(one(number, at_s)))

    def arrive(group: asyncio.TaskGroup) -> None:
        # A thread: an event loop's own timers come up to a millisecond late, which is a fifth of what is measured.
        for number, at_s in enumerate(times):
            if over.wait(max(0.0, began + at_s - time.perf_counter())):
                return
            loop.call_soon_threadsafe(begin, group, number, at_s)

    async with asyncio.TaskGroup() as group:
        try:
            await asyncio.to_thread(arrive, group)
        except asyncio.CancelledError:
            over.set()
            raise
    return [task.result() for task in tasks]


async def closed_loop(
    at_once: int, total: int, call: Callable[[int], Awaitable[object]], *, for_s: float = math.inf
) -> list[Met]:
    """Make `total` calls, `at_once` in flight, each when the one before it in its lane is answered.

    Args:
        at_once: how many lanes there are.
        total: of all lanes, each of which makes an equal part.
        call: gets the number of its lane.
        for_s: no call begins after so many seconds.
    """
    until = time.perf_counter() + for_s

    async def lane(number: int) -> list[Met]:
        met = []
        for _ in range(total // at_once):
            began = time.perf_counter()
            if began > until:
                break
            answer = await call(number)
            met.append(Met((time.perf_counter() - began) * 1e3, answer))
        return met

    async with asyncio.TaskGroup() as group:
        lanes = [group.create_task(lane(number)) for number in range(at_once)]
    return [one for done in lanes for one in done.result()]


def numbered(call: Callable[[int], Awaitable[object]]) -> Callable[[int], Awaitable[object]]:
    """Return a call that passes on how many calls came before it, whatever its lane."""
    numbers = itertools.count()
    return lambda _: call(next(numbers))


async def one_by_one(count: int, call: Callable[[int], Awaitable[object]], *, for_s: float = math.inf) -> list[Met]:
    """Make each call when the one before is answered; the call gets its number, `for_s` is as of `closed_loop`."""
    return await closed_loop(1, count, numbered(call), for_s=for_s)
