"""Cells of an interpreter, against a bare Python that stays and a Python that starts for each line."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable

from rollbox import Client, Interpreter, Process, Sandbox
from rollbox.bench.arrivals import closed_loop
from tests.bench.jupyter import beside
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution, of_rounds
from tests.bench.warm_interpreter import first_cells
from tests.support.images import ON_CLUSTER, ON_ENGINE, frameworks_image
from tests.support.stack import Product

ROUNDS = 5
CELLS, EXECS = 200, 20
SANDBOXES = 20
OUTPUT_BYTES = 10_000_000
MIB = 2**20
# What stays and knows nothing else: the limit of this path.
BARE = ["python3", "-uc", "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"]
WRITES = f"import sys; sys.stdout.write('y' * {OUTPUT_BYTES});"


async def measure(product: Product, *, on_cluster: bool) -> list[Record]:
    """The records of this scenario, on an engine or a cluster. Cost: four minutes."""
    image = ON_CLUSTER if on_cluster else ON_ENGINE
    kernels = await asyncio.to_thread(frameworks_image, on_cluster=on_cluster)
    async with contextlib.AsyncExitStack() as exits:
        client = await exits.enter_async_context(Client(product.url, product.api_key))
        made = await asyncio.gather(*(client.create(image, memory="256Mi", cpu=(0.05, 2)) for _ in range(SANDBOXES)))
        sandboxes = [await exits.enter_async_context(sandbox) for sandbox in made]
        costs = await _memory(sandboxes[1])
        mine = [*await _one(sandboxes[0]), *await _at_once(sandboxes), await _output(sandboxes[0]), costs]
        return [*mine, *await beside(client, kernels), *await first_cells(client, image)]


async def _p50(count: int, call: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


async def _asked(process: Process) -> None:
    await process.stdin.write(b"1+1\n")
    assert await process.stdout.readline() == "2"


async def _cell(python: Interpreter) -> None:
    assert (await python.run("1+1")).text == "2"


async def _exec(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["python3", "-c", "print(1+1)"])).stdout == "2\n"


async def _one(sandbox: Sandbox) -> list[Record]:
    """`1+1`, one at a time, and a start."""
    doing("cells, one at a time")
    cells, bare, execs, starts, first = [], [], [], [], []
    async with await sandbox.interpreter() as python, await sandbox.spawn(BARE) as process:
        for _ in range(ROUNDS):
            bare.append(await _p50(CELLS, lambda: _asked(process)))
            cells.append(await _p50(CELLS, lambda: _cell(python)))
            execs.append(await _p50(EXECS, lambda: _exec(sandbox)))
            starts.append(await _p50(5, lambda: _started(sandbox)))
            first.append(await _p50(5, lambda: _exec(sandbox)))
    where = f"one sandbox, {ROUNDS} rounds in turn of {CELLS} cells and {EXECS} execs, everything on this machine"
    mine, stays, other, start = (of_rounds(one) for one in (cells, bare, execs, starts))
    return [
        _record("cell 1+1, p50, against a bare Python that stays", mine, where, "lines over spawn", stays),
        _record("cell 1+1, p50, against an exec of python3 -c", mine, where, "python3 -c, p50", other),
        _record("start of an interpreter, p50", start, where, "an exec of python3 -c, p50", of_rounds(first)),
    ]


async def _started(sandbox: Sandbox) -> None:
    async with await sandbox.interpreter():
        pass


def _record(name: str, mine: dict[str, float], where: str, what: str, other: dict[str, float]) -> Record:
    return Record(name, mine["p50"], "ms", where, Baseline(what, other["p50"], other), distribution=mine)


async def _at_once(sandboxes: list[Sandbox]) -> list[Record]:
    """As many a second as there are, in different sandboxes."""
    doing(f"cells, {SANDBOXES} at once")
    async with contextlib.AsyncExitStack() as exits:
        pythons = [await exits.enter_async_context(await sandbox.interpreter()) for sandbox in sandboxes]
        rates, others = [], []
        for _ in range(3):
            rates.append(await _rate(2000, lambda lane: _cell(pythons[lane])))
            others.append(await _rate(200, lambda lane: _exec(sandboxes[lane])))
    mine, other = of_rounds(rates), of_rounds(others)
    where = f"{SANDBOXES} at once in different sandboxes, closed loop, 3 rounds in turn, everything on this machine"
    baseline = Baseline("execs of python3 -c a second", other["p50"], other)
    name = f"cells a second, {SANDBOXES} at once"
    return [Record(name, mine["p50"], "1/s", where, baseline, faster_is="larger", distribution=mine)]


async def _rate(total: int, call: Callable[[int], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await closed_loop(SANDBOXES, total, call)
    return total / (time.perf_counter() - began)


async def _output(sandbox: Sandbox) -> Record:
    """Output of a cell, against that of a command."""
    doing("output of a cell")
    rates, others = [], []
    async with await sandbox.interpreter(max_output_bytes=2 * OUTPUT_BYTES) as python:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            assert len((await python.run(WRITES)).stdout_bytes) == OUTPUT_BYTES
            rates.append(OUTPUT_BYTES / MIB / (time.perf_counter() - began))
            async with await sandbox.spawn(["head", "-c", str(OUTPUT_BYTES), "/dev/zero"]) as process:
                began = time.perf_counter()
                assert len(await process.stdout.read()) == OUTPUT_BYTES
                others.append(OUTPUT_BYTES / MIB / (time.perf_counter() - began))
    mine, other = of_rounds(rates), of_rounds(others)
    where = f"one cell that writes {OUTPUT_BYTES} bytes, {ROUNDS} rounds in turn, everything on this machine"
    baseline = Baseline("as much from head, over the pipe of spawn", other["p50"], other)
    return Record("output of a cell", mine["p50"], "MiB/s", where, baseline, faster_is="larger", distribution=mine)


async def _memory(sandbox: Sandbox) -> Record:
    """What a sandbox uses more for each of some interpreters that wait."""
    doing("memory of an interpreter")
    count = 8
    before = (await sandbox.usage()).memory_bytes
    async with contextlib.AsyncExitStack() as exits:
        for _ in range(count):
            python = await exits.enter_async_context(await sandbox.interpreter())
            await _cell(python)
        each = ((await sandbox.usage()).memory_bytes - before) / count / MIB
    where = f"usage of one sandbox, {count} interpreters that have run a cell and wait"
    return Record("memory of an interpreter that waits", each, "MiB", where, distribution=distribution([each]))
