"""Two thousand sandboxes and ten thousand execs in one event loop: what the client itself spends."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import aiohttp

from rollbox import Client, LazySandbox, Sandbox, SandboxGroup
from tests.bench.lifecycle.stage import stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record

SANDBOXES = 2000
EXECS = 10_000
AT_ONCE = 64
PAGE = os.sysconf("SC_PAGE_SIZE")


async def measure() -> list[Record]:
    """The records of this scenario. Cost: about a minute."""
    async with stage() as ground, ground.client() as client:
        doing(f"{SANDBOXES} sandboxes come up")
        bare_tasks, bare_threads = len(asyncio.all_tasks()), threading.active_count()
        lazy = [LazySandbox("localhost/bench/cold:1", client=client) for _ in range(SANDBOXES)]
        made = [sandbox for _ in range(4) for sandbox in await _group(client, SANDBOXES // 4)]
        idle_tasks, idle_threads = len(asyncio.all_tasks()) - bare_tasks, threading.active_count() - bare_threads
        assert not any(one.started for one in lazy)
        doing(f"{EXECS} execs")
        await _spent(made, EXECS // 5, _exec)
        before = _resident()
        cpu_ms, wall_s = await _spent(made, EXECS, _exec)
        grown = _resident() - before
        bare_ms, _ = await _bare(made, EXECS // 2)
        await client.delete(labels={"bench": "sdk"}, wait=True)
    where = f"{SANDBOXES} live sandboxes in one event loop, {AT_ONCE} calls at a time, real gateway, played sidecars"
    return [
        Record(
            "client CPU an exec",
            cpu_ms,
            "ms",
            f"{where}; {EXECS} execs in {wall_s:.1f} s",
            Baseline("the same request by aiohttp alone, CPU each", bare_ms),
        ),
        Record("memory that the client grew by", grown, "MiB", f"{where}; over {EXECS} execs"),
        Record("tasks for idle sandboxes", idle_tasks, "", f"{where}, and as many lazy ones; one renews"),
        Record("threads for idle sandboxes", idle_threads, "", where),
    ]


async def _group(client: Client, count: int) -> SandboxGroup[Sandbox]:
    return await SandboxGroup.create("localhost/bench/cold:1", n=count, client=client, labels={"bench": "sdk"})


async def _exec(sandbox: Sandbox) -> None:
    if (await sandbox.exec(["true"])).exit_code != 0:
        raise RuntimeError("true did not end with 0")


async def _spent(made: list[Sandbox], count: int, call: Callable[[Sandbox], Awaitable[None]]) -> tuple[float, float]:
    """Milliseconds of this process's CPU for each call, and seconds in all."""
    turns = iter(range(count))

    async def lane() -> None:
        for turn in turns:
            await call(made[turn % len(made)])

    cpu_s, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    return (time.process_time() - cpu_s) * 1e3 / count, time.perf_counter() - began


async def _bare(made: list[Sandbox], count: int) -> tuple[float, float]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def call(sandbox: Sandbox) -> None:
            access = sandbox._access
            headers = {"Authorization": f"Bearer {access.token}"}
            body = {"exec_id": uuid4().hex, "argv": ["true"]}
            async with session.post(access.exec_url, json=body, headers=headers) as answer:
                await answer.json()

        return await _spent(made, count, call)


def _resident() -> float:
    """MiB of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20
