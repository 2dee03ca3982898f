"""exec of `true` through SDK, gateway and sidecar, against the sidecar's own spawn and the engine's own exec."""

from __future__ import annotations

import asyncio
import contextlib

from rollbox import Client, ExecResult, Sandbox
from rollbox.bench import calls
from rollbox.bench.arrivals import closed_loop
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.bench.took import took_ms
from tests.support.containers import engine, engine_command
from tests.support.images import IMAGE
from tests.support.stack import Stack


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: about a minute."""
    async with contextlib.AsyncExitStack() as exits:
        client = await exits.enter_async_context(Client(stack.url, stack.api_key))
        made = await asyncio.gather(*(client.create(IMAGE) for _ in range(calls.SANDBOXES)))
        sandboxes = [await exits.enter_async_context(sandbox) for sandbox in made]
        return [record for at_once in calls.EXECS for record in await _at(at_once, sandboxes)]


async def _at(at_once: int, sandboxes: list[Sandbox]) -> list[Record]:
    ours = calls.execs(sandboxes)

    async def theirs(lane: int) -> None:
        await engine("exec", f"rollbox-{sandboxes[lane % len(sandboxes)].id}-target", "true")

    doing(f"{at_once} at once")
    await closed_loop(at_once, calls.EXECS[at_once] // 10, ours)
    met = await closed_loop(at_once, calls.EXECS[at_once], ours)
    spawns = [one.answer.spawn_ms + one.answer.run_ms for one in met if isinstance(one.answer, ExecResult)]
    by_engine = await closed_loop(at_once, calls.BASELINE_EXECS[at_once], theirs)
    mine, spawn, other = distribution(took_ms(met)), distribution(spawns), distribution(took_ms(by_engine))
    used = min(at_once, calls.SANDBOXES)
    where = f"{at_once} at once, closed loop, sandboxes: {used}, everything on this machine"
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
