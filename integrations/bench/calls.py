"""What the programs of this folder share: each runs in the environment of one host, and prints JSON.

HOST.py exec                                   p50s of an exec by the host's own call and by the SDK's, in turn, in one
                                               sandbox
HOST.py rollouts PROVIDER COUNT AT_ONCE TURNS  seconds of so many rollouts of so many commands each, creates and ends
                                               included
HOST.py lazy                                   threads and memory of one process with MANY sandboxes that were made and
                                               are not started
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]
PAIRS = 200
WARM_UP = 20
MANY = 512

Run = Callable[[Sequence[str]], Awaitable[object]]


class Host(Protocol):
    """One host."""

    async def begin(self, provider: str) -> None:
        """What the host does once, before the first of many rollouts."""

    def opened(self, provider: str) -> AbstractAsyncContextManager[Run]:
        """A sandbox of a rollout while a block runs, by the call with which the host runs a command in it."""

    def both(self) -> AbstractAsyncContextManager[tuple[Run, Run]]:
        """The host's call and the SDK's, of one sandbox."""

    def unstarted(self) -> object:
        """A sandbox that is made, as far as the host makes it before its first use."""


async def _exec(host: Host) -> dict[str, object]:
    async with host.both() as runs:
        took: list[list[float]] = [[], []]
        for number in range(WARM_UP + PAIRS):
            for run, values in zip(runs, took, strict=True):
                began = time.perf_counter()
                await run(["true"])
                if number >= WARM_UP:
                    values.append((time.perf_counter() - began) * 1e3)
    own, sdk = (statistics.quantiles(values, n=4) for values in took)
    return {"adapter_ms": own, "sdk_ms": sdk}


async def _rollouts(host: Host, provider: str, count: int, at_once: int, turns: int) -> dict[str, object]:
    room = asyncio.Semaphore(at_once)

    async def rollout() -> None:
        async with room, host.opened(provider) as run:
            for turn in range(turns):
                await run(["sh", "-c", f"echo {turn} >> /tmp/turns; wc -l < /tmp/turns"])

    began = time.perf_counter()
    await host.begin(provider)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(rollout())
    return {"seconds": time.perf_counter() - began}


async def _lazy(host: Host) -> dict[str, object]:
    def resident_kib() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))

    kept = [host.unstarted()]
    before = threading.active_count(), resident_kib()
    kept += [host.unstarted() for _ in range(MANY - 1)]
    return {"threads": threading.active_count() - before[0], "kib": resident_kib() - before[1], "made": len(kept)}


def main(host: Host) -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["exec"]:
            said = asyncio.run(_exec(host))
        case ["rollouts", provider, count, at_once, turns]:
            said = asyncio.run(_rollouts(host, provider, int(count), int(at_once), int(turns)))
        case ["lazy"]:
            said = asyncio.run(_lazy(host))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(said))
