"""What an agent's turn is made of: a command in its shell, a file written and read, an exec."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rollbox import Client, Process, Sandbox, Shell
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.stack import Product

ROUNDS: Final = 5
EACH: Final = 100
DATA: Final = bytes(range(256)) * 16
PATH: Final = "/tmp/turn"
RESIDENT: Final = "a line to cat, which stays, and its answer, p50"
EXEC: Final = "an exec of true, p50"


async def measure(product: Product, image: str) -> list[Record]:
    """The records of this scenario. Cost: a minute.

    Args:
        product: what runs the sandbox.
        image: that the sandbox is made of.
    """
    doing("commands in a shell, files, execs, in turns")
    async with (
        Client(product.url, product.api_key) as client,
        await client.create(image) as sandbox,
        await sandbox.shell() as shell,
        await sandbox.spawn(["cat"]) as stays,
    ):
        await sandbox.files.write(PATH, DATA)
        calls = _calls(sandbox, shell, stays)
        rounds = [{name: await _p50(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    took = {name: of_rounds([one[name] for one in rounds]) for name in calls}
    against = {name: RESIDENT for name in calls if name != RESIDENT} | {"/bin/true in a shell, p50": EXEC}
    return [_record(name, took, baseline) for name, baseline in against.items()]


def _calls(sandbox: Sandbox, shell: Shell, stays: Process) -> Mapping[str, Callable[[], Awaitable[object]]]:
    async def resident() -> None:
        await stays.stdin.write(b"1\n")
        assert await stays.stdout.readline() == "1"

    async def executed() -> None:
        assert (await sandbox.exec(["true"])).ok

    async def in_shell(command: str) -> None:
        assert (await shell.run(command)).ok

    async def read() -> None:
        assert await sandbox.files.read(PATH) == DATA

    return {
        RESIDENT: resident,
        EXEC: executed,
        "true in a shell, p50": lambda: in_shell("true"),
        "/bin/true in a shell, p50": lambda: in_shell("/bin/true"),
        "a write of 4 KiB, p50": lambda: sandbox.files.write(PATH, DATA),
        "a read of 4 KiB, p50": read,
    }


async def _p50(call: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(EACH):
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def _record(figure: str, took: Mapping[str, dict[str, float]], against: str) -> Record:
    mine, other = took[figure], took[against]
    where = f"one sandbox, {ROUNDS} rounds in turn of {EACH} of each, one at a time, everything on this machine"
    return Record(figure, mine["p50"], "ms", where, Baseline(against, other["p50"], other), distribution=mine)
