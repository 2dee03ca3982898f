"""exec of `true` through SDK, gateway and sidecar, against the sidecar's own spawn and the engine's own exec."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from rollbox import Client, Sandbox
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.support.containers import engine, engine_command
from tests.support.images import IMAGE
from tests.support.stack import Stack

SANDBOXES = 8
OURS = {1: 2000, 32: 6400}
THEIRS = {1: 30, 32: 96}


async def closed_loop(at_once: int, total: int, call: Callable[[int], Awaitable[None]]) -> list[float]:
    """Latencies in ms of `total` calls, `at_once` in flight; `call` gets the number of its lane."""

    async def lane(number: int) -> list[float]:
        latencies = []
        for _ in range(total // at_once):
            began = time.perf_counter()
            await call(number)
            latencies.append((time.perf_counter() - began) * 1e3)
        return latencies

    async with asyncio.TaskGroup() as group:
        lanes = [group.create_task(lane(number)) for number in range(at_once)]
    return [latency for done in lanes for latency in done.result()]


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: about a minute."""
    async with contextlib.AsyncExitStack() as exits:
        client = await exits.enter_async_context(Client(stack.url, stack.api_key))
        made = await asyncio.gather(*(client.create(IMAGE) for _ in range(SANDBOXES)))
        sandboxes = [await exits.enter_async_context(sandbox) for sandbox in made]
        return [record for at_once in OURS for record in await _at(at_once, sandboxes)]


async def _at(at_once: int, sandboxes: list[Sandbox]) -> list[Record]:
    spawns: list[float] = []

    async def ours(lane: int) -> None:
        result = await sandboxes[lane % len(sandboxes)].exec(["true"])
        if result.exit_code != 0:
            raise RuntimeError(f"exec of true ended with {result}")
        spawns.append(result.spawn_ms + result.run_ms)

    async def theirs(lane: int) -> None:
        await engine("exec", f"rollbox-{sandboxes[lane % len(sandboxes)].id}-target", "true")

    doing(f"{at_once} at once")
    await closed_loop(at_once, OURS[at_once] // 10, ours)
    spawns.clear()
    latencies = await closed_loop(at_once, OURS[at_once], ours)
    engine_latencies = await closed_loop(at_once, THEIRS[at_once], theirs)
    mine, spawn, other = distribution(latencies), distribution(spawns), distribution(engine_latencies)
    where = f"{at_once} at once, closed loop, {SANDBOXES} sandboxes, everything on this machine"
    name = f"exec of true, p50, {at_once} at once"
    against_engine = Record(
        f"{name}, against {engine_command()} exec",
        mine["p50"],
        "ms",
        f"{where}; {mine['n']:.0f} execs of ours, {other['n']:.0f} of the engine's",
        Baseline(f"{engine_command()} exec in the same sandboxes, p50", other["p50"], other),
        distribution=mine,
    )
    against_spawn = Record(
        f"{name}, against the sidecar's own spawn",
        mine["p50"],
        "ms",
        where,
        Baseline("spawn + run as the sidecar measures them in the same execs, p50", spawn["p50"], spawn),
        distribution=mine,
    )
    return [against_spawn, against_engine]
