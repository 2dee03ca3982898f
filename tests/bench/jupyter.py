"""Cells of an interpreter, and its start, against a real ipykernel in the same sandbox."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

from rollbox import Client, Process
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds

ROUNDS, STARTS = 5, 3
CELLS = 50
# A client and its kernel, as `jupyter_client` starts one, asked for a cell by a line, as a bare Python is. The imports
# of the client are no part of the start of its kernel.
CLIENT = """
import sys, time
from jupyter_client import KernelManager
def started():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.kernel_info()
    client.get_shell_msg(timeout=60)
    return manager, client
def cell(client, code):
    asked, value = client.execute(code), None
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != asked: continue
        if message["msg_type"] == "execute_result": value = message["content"]["data"]["text/plain"]
        if message["content"].get("execution_state") == "idle": break
    client.get_shell_msg(timeout=60)
    return value
manager, client = started()
cell(client, "0")
for line in sys.stdin:
    if line == "start\\n":
        began = time.perf_counter()
        other = started()
        print((time.perf_counter() - began) * 1e3, flush=True)
        other[1].stop_channels()
        other[0].shutdown_kernel(now=True)
    else:
        print(cell(client, line), flush=True)
"""


async def beside(client: Client, image: str) -> list[Record]:
    """The records against an ipykernel.

    Args:
        client: of the product.
        image: one that has ipykernel.
    """
    doing("cells beside an ipykernel")
    cells, kernels, starts, others = [], [], [], []
    async with await client.create(image, memory="1Gi", cpu=(0.1, 2)) as sandbox:
        argv = ["python3", "-uc", CLIENT]
        async with await sandbox.interpreter() as python, await sandbox.spawn(argv) as process:

            async def cell() -> None:
                assert (await python.run("1+1")).text == "2"

            async def started() -> None:
                async with await sandbox.interpreter():
                    pass

            for _ in range(ROUNDS):
                cells.append(await _p50(CELLS, cell))
                kernels.append(await _p50(CELLS, lambda: _asked(process)))
                starts.append(await _p50(STARTS, started))
                others.append(statistics.median([await _start(process) for _ in range(STARTS)]))
    where = f"one sandbox, {ROUNDS} rounds in turn of {CELLS} cells and {STARTS} starts, everything on this machine"
    lines = "the kernel and a jupyter_client in the sandbox, asked by lines over spawn"
    alone = "ipykernel by jupyter_client, timed in the sandbox, without the client's imports"
    start, other = of_rounds(starts), of_rounds(others)
    return [
        _record("cell 1+1, p50, against an ipykernel", of_rounds(cells), where, lines, of_rounds(kernels)),
        _record("start of an interpreter, p50, against an ipykernel", start, where, alone, other),
    ]


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


async def _start(process: Process) -> float:
    await process.stdin.write(b"start\n")
    return float(await process.stdout.readline() or "nan")


def _record(name: str, mine: dict[str, float], where: str, what: str, other: dict[str, float]) -> Record:
    return Record(name, mine["p50"], "ms", where, Baseline(what, other["p50"], other), distribution=mine)
