"""What the sandboxes' own kernels give: `posix_spawn` of `true` in a loop inside them, in turn with our execs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from rollbox import Process, Sandbox
from rollbox.bench.arrivals import closed_loop
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds

ROUNDS = 5
# At once -> starts of each kind a round.
COUNTS = {1: 200, 20: 1000, 100: 2000}
# Waits for the line that all of them get together, so that no interpreter starts while others are timed.
LOOP = """
import os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    for _ in range(int(line)):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    print(time.perf_counter() - began, flush=True)
"""


async def measure(at_once: int, sandboxes: Sequence[Sandbox]) -> Record:
    """Our execs in so many different sandboxes against as many loops inside the same ones."""
    doing(f"{at_once} at once, against posix_spawn inside")
    chosen = sandboxes[:at_once]
    ours, theirs = [], []
    async with AsyncExitStack() as exits:
        loops = [await exits.enter_async_context(await one.spawn(["python3", "-c", LOOP])) for one in chosen]
        lines = [loop.stdout.lines() for loop in loops]
        for line in lines:
            await anext(line)
        for _ in range(ROUNDS):
            ours.append(await _ours(at_once, chosen))
            theirs.append(await _theirs(COUNTS[at_once] // at_once, loops, lines))
    where = f"{COUNTS[at_once]} starts of each a round, median of {ROUNDS} rounds in turn, everything on this machine"
    name = f"exec of true in gVisor, {at_once} at once, against posix_spawn inside"
    if at_once == 1:
        mine, other = (of_rounds([one_s * 1e3 for one_s in each_s]) for each_s in (ours, theirs))
        baseline = Baseline("a loop inside, each start", other["p50"], other)
        return Record(name, mine["p50"], "ms", where, baseline, distribution=mine)
    mine, other = (of_rounds([1 / one_s for one_s in each_s]) for each_s in (ours, theirs))
    baseline = Baseline("as many loops inside the same sandboxes", other["p50"], other)
    return Record(name, mine["p50"], "1/s", where, baseline, faster_is="larger", distribution=mine)


async def _ours(at_once: int, sandboxes: Sequence[Sandbox]) -> float:
    """Seconds of wall time for each."""

    async def call(lane: int) -> None:
        await sandboxes[lane].exec(["true"], check=True)

    began_s = time.perf_counter()
    await closed_loop(at_once, COUNTS[at_once], call)
    return (time.perf_counter() - began_s) / COUNTS[at_once]


async def _theirs(count: int, loops: Sequence[Process], lines: Sequence[object]) -> float:
    """The same inside, until the last loop is through."""
    began_s = time.perf_counter()
    await asyncio.gather(*(loop.stdin.write(f"{count}\n") for loop in loops))
    await asyncio.gather(*(anext(line) for line in lines))  # type: ignore[call-overload]
    return (time.perf_counter() - began_s) / (count * len(loops))
