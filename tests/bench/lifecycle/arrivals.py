"""When creates arrive, and what each of them met. The shapes are lists of seconds; pure."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


def staggered(count: int, every_s: float) -> list[float]:
    """Evenly apart."""
    return [number * every_s for number in range(count)]


def burst(count: int) -> list[float]:
    """All in the same instant."""
    return [0.0] * count


def poisson(count: int, per_second: float, seed: int = 6) -> list[float]:
    """At random with a mean rate: independent callers. The same for the same seed."""
    draw, at, times = random.Random(seed), 0.0, []
    for _ in range(count):
        at += draw.expovariate(per_second)
        times.append(at)
    return times


@dataclass(frozen=True)
class Met:
    """One arrival: milliseconds from when it was due (not from when it was sent) to its answer, and the answer."""

    ms: float
    answer: object


async def open_loop(times: Sequence[float], call: Callable[[int], Awaitable[object]]) -> list[Met]:
    """Call at each of the times, whether earlier calls have been answered or not; in the order of the times."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[Met]] = []
    began = time.perf_counter()

    async def one(number: int, at_s: float) -> Met:
        answer = await call(number)
        return Met((time.perf_counter() - began - at_s) * 1e3, answer)

    def begin(group: asyncio.TaskGroup, number: int, at_s: float) -> None:
        tasks.append(group.create_task(one(number, at_s)))

    def arrive(group: asyncio.TaskGroup) -> None:
        # A thread: an event loop's own timers come up to a millisecond late, which is a fifth of what is measured.
        for number, at_s in enumerate(times):
            time.sleep(max(0.0, began + at_s - time.perf_counter()))
            loop.call_soon_threadsafe(begin, group, number, at_s)

    async with asyncio.TaskGroup() as group:
        await asyncio.to_thread(arrive, group)
    return [task.result() for task in tasks]


async def one_by_one(count: int, call: Callable[[int], Awaitable[object]]) -> list[Met]:
    """Each call when the one before is answered."""
    met = []
    for number in range(count):
        began = time.perf_counter()
        answer = await call(number)
        met.append(Met((time.perf_counter() - began) * 1e3, answer))
    return met
