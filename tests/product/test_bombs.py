"""Code that attacks its own sandbox: its neighbour notices nothing, and its caller is told within seconds.

Where the kernel holds a bomb within a limit of its own (an engine's process limit), the sandbox takes the next command;
where the limit is the whole sandbox's (memory under gVisor) it may end, with the cause in the code.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from rollbox import Client, ExecResult, Sandbox, SandboxError
from rollbox.errors import DiskFull, NoSpace, OomKilled, PidsExhausted
from tests.support.bombs import BOMBS
from tests.support.images import IMAGE
from tests.support.waiting import until

_T = TypeVar("_T")

TOLD_WITHIN_S = 60.0
# What may come of a bomb instead of a result: the workload's own doing, never the platform's.
OWN_DOING = (OomKilled, PidsExhausted, DiskFull, NoSpace)


@dataclass
class Neighbour:
    """A sandbox that is asked without a pause while bombs go off next door."""

    sandbox: Sandbox
    answers: int = 0
    longest_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    async def ask(self) -> None:
        """Ask until cancelled."""
        while True:
            began = time.monotonic()
            try:
                result = await self.sandbox.exec(["echo", "here"], timeout=30)
                assert result.stdout == "here\n", result
                self.answers += 1
            except SandboxError as error:
                self.failures.append(f"{error.code}: {error.detail}")
            self.longest_s = max(self.longest_s, time.monotonic() - began)


@pytest.fixture
async def neighbour(shared: Sandbox) -> AsyncIterator[Neighbour]:
    """Answers all the time; afterwards none of its commands has failed."""
    found = Neighbour(shared)
    asking = asyncio.create_task(found.ask())
    yield found
    await until_more(found)
    asking.cancel()
    await asyncio.wait([asking])
    assert found.failures == []


async def until_more(neighbour: Neighbour) -> None:
    """Wait until the neighbour has answered once more."""
    seen = neighbour.answers

    async def more() -> bool:
        await asyncio.sleep(0.01)
        return neighbour.answers > seen

    await until(more)


@pytest.fixture
async def bombed(client: Client) -> AsyncIterator[Sandbox]:
    """The sandbox that is attacked; deleting it afterwards ends within the same bound, whatever runs in it."""
    made = await client.create(IMAGE, memory="256Mi", cpu=1)
    yield made
    await in_time(made.delete())


async def in_time(call: Awaitable[_T]) -> _T:
    """What a bomb must not hold up."""
    async with asyncio.timeout(TOLD_WITHIN_S):
        return await call


async def goes_off(sandbox: Sandbox, bomb: str, timeout: float = 2) -> ExecResult | SandboxError:  # noqa: ASYNC109
    """Run it; a failure that is not its own doing fails the test."""
    try:
        return await in_time(sandbox.exec(bomb, timeout=timeout))
    except OWN_DOING as error:
        return error


async def still_serves(sandbox: Sandbox) -> None:
    """Take another command, or be gone by its own doing: its node may have ended it."""

    async def served() -> bool:
        with contextlib.suppress(PidsExhausted):
            return (await sandbox.exec(["/bin/echo", "alive"])).stdout == "alive\n"
        return False

    with contextlib.suppress(OomKilled, DiskFull):
        await in_time(until(served, TOLD_WITHIN_S))


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_bomb_hurts_only_its_own_sandbox(bombed: Sandbox, neighbour: Neighbour, bomb: str) -> None:
    ended = await goes_off(bombed, bomb)
    if isinstance(ended, ExecResult):
        assert ended.end in {"deadline", "oom_killed", "signalled", "exited"}
    await until_more(neighbour)
    await still_serves(bombed)


async def test_the_sandbox_can_be_asked_while_it_burns(client: Client, neighbour: Neighbour) -> None:
    """Usage, the list and a cancel come through in the middle of a fork bomb."""
    # Room for as many processes as it may have: it is to burn, and not to end.
    async with await client.create(IMAGE, memory="1Gi", cpu=1) as bombed:
        async with await bombed.spawn("b() { b | b & }; b; sleep 600", stdin=False) as process:
            await in_time(bombed.usage())
            listed = await in_time(bombed.processes.list())
            assert process.exec_id in {item.exec_id for item in listed if item.running}
            await in_time(process.kill())
            assert (await in_time(process.wait())).end == "cancelled"
        await until_more(neighbour)
        await still_serves(bombed)


@pytest.mark.timeout(300)
async def test_a_million_files_are_bounded_by_their_time(bombed: Sandbox, neighbour: Neighbour) -> None:
    """As many as a few seconds give; listing them is bounded by the limit, and removing the lot by nothing."""
    program = (
        "import os\nos.mkdir('/tmp/many')\nfor n in range(1_000_000):\n"
        "  os.close(os.open(f'/tmp/many/{n}', os.O_CREAT | os.O_WRONLY))"
    )
    await goes_off(bombed, f'python3 -c "{program}"', timeout=4)
    listed = await in_time(bombed.files.list("/tmp/many", limit=1_000))
    assert (len(listed), listed.truncated) == (1_000, True)
    await until_more(neighbour)
    await still_serves(bombed)


async def test_a_full_disk_is_told_and_room_can_be_made(bombed: Sandbox, neighbour: Neighbour) -> None:
    """On the file system that an engine limits; under gVisor it is memory, and ends as that does."""
    filled = await bombed.exec("head -c 10G /dev/zero > /dev/shm/full", timeout=30)
    assert filled.exit_code != 0
    await until_more(neighbour)
    if filled.oom_killed:
        return
    with pytest.raises(NoSpace):
        await bombed.files.write("/dev/shm/more", b"x" * 100_000)
    await bombed.files.remove("/dev/shm/full")
    await bombed.files.write("/dev/shm/more", b"x" * 100_000)


async def test_output_without_end_is_drained_or_waits_and_ends_in_time(bombed: Sandbox, neighbour: Neighbour) -> None:
    """10 GB, or what comes of them within a few seconds; what is kept of it is bounded."""
    ended = await goes_off(bombed, "head -c 10000000000 /dev/zero; head -c 10000000 /dev/zero >&2")
    assert isinstance(ended, ExecResult)
    assert ended.end in {"deadline", "exited"}
    assert len(ended.stdout_bytes) <= 2**25 < ended.stdout_total_bytes
    async with await bombed.spawn(["cat", "/dev/zero"]) as process:
        for _ in range(50):
            assert await anext(process.stdout)
        await in_time(process.kill())
    await until_more(neighbour)
    await still_serves(bombed)


async def test_without_its_files_the_sandbox_tells_what_is_missing(bombed: Sandbox, neighbour: Neighbour) -> None:
    await goes_off(bombed, "rm -rf --no-preserve-root / 2>/dev/null", timeout=20)
    with pytest.raises(SandboxError) as told:
        await in_time(bombed.exec(["/bin/echo", "alive"]))
    assert not told.value.is_infra
    # What needs no file of the image still works.
    await bombed.files.write("/word", b"kept")
    assert await bombed.files.read("/word") == b"kept"
    assert (await bombed.usage()).processes >= 0
    await until_more(neighbour)
