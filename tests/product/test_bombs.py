"""Code that attacks its own sandbox: its neighbour notices nothing, and its caller is told within seconds.

Where the kernel holds a bomb within a limit of its own (of processes), the sandbox takes the next command; where the
limit is the whole sandbox's (memory under gVisor) it may end with it, and the code says so.
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
from rollbox.errors import InvalidArgument, NoSpace, OomKilled, PidsExhausted
from tests.support.bombs import BOMBS
from tests.support.images import IMAGE
from tests.support.waiting import until

_T = TypeVar("_T")

# Over the time that a bomb itself is given: a busy machine, and a kernel that is out of memory.
TOLD_WITHIN_S = 20.0
# What takes memory under gVisor and not on an engine: there the sandbox may be out of it before the deadline.
TAKE_MEMORY = frozenset({"forks", "forks that ignore signals", "descriptors"})


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


@pytest.fixture
async def one_limit(client: Client) -> bool:
    """Whether memory is limited for the whole sandbox only, its kernel and files too: what passes it ends all of it."""
    return str((await client.info())["isolation"]).lower() == "gvisor"


async def in_time(call: Awaitable[_T], own_s: float = 0) -> _T:
    """What a bomb must not hold up, beyond the time that the call itself may take."""
    async with asyncio.timeout(own_s + TOLD_WITHIN_S):
        return await call


async def goes_off(sandbox: Sandbox, bomb: str, ends: set[str], timeout: float = 2) -> ExecResult:  # noqa: ASYNC109
    """Run it; its end is told in time, and one of these."""
    ended = await in_time(sandbox.exec(bomb, timeout=timeout), timeout)
    assert ended.end in ends, ended
    return ended


async def still_serves(sandbox: Sandbox, ended: ExecResult, *, one_limit: bool) -> None:
    """Take another command, as soon as there are processes to be had; or be gone by its own doing, and say so."""
    if ended.oom_killed and one_limit:
        with pytest.raises(OomKilled) as gone:
            await in_time(sandbox.exec("true"))
        assert not gone.value.is_infra
        return
    await serves_again(sandbox, TOLD_WITHIN_S)


async def serves_again(sandbox: Sandbox, within_s: float) -> None:
    """Take another command, as soon as there are processes to be had."""

    async def served() -> bool:
        try:
            return (await sandbox.exec(["/bin/echo", "alive"])).stdout == "alive\n"
        except PidsExhausted:
            return False

    await until(served, within_s)


async def gone(sandbox: Sandbox) -> bool:
    """Whether nothing runs any more but what asks; a kill may go on behind its answer."""
    try:
        return (await sandbox.exec("ls /proc | grep -c '^[0-9]'")).stdout == "4\n"
    except PidsExhausted:
        return False


async def test_processes_and_threads_are_limited(client: Client) -> None:
    program = (
        "import threading, time\nfor n in range(200):\n"
        "  try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "  except RuntimeError as error: print(n, error); break"
    )
    async with await client.create(IMAGE, memory="256Mi", pids=64) as sandbox:
        for user in ("0", "1000"):
            number, words = (await sandbox.exec(["python3", "-c", program], user=user)).stdout.split(" ", 1)
            assert (words, int(number) in range(48, 73)) == ("can't start new thread\n", True), number
        assert (await sandbox.usage()).processes_limit == 64


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_hurts_only_its_own_sandbox(
    bombed: Sandbox, neighbour: Neighbour, one_limit: bool, name: str
) -> None:
    takes_all = one_limit and name in TAKE_MEMORY
    # Memory has to be full before the time is over.
    ends, limit_s = ({"oom_killed"}, 10) if name == "memory" else ({"deadline"}, 2)
    ended = await goes_off(bombed, BOMBS[name], ends | ({"oom_killed"} if takes_all else set()), limit_s)
    await until_more(neighbour)
    # Between the deadline and the last kill it may still take the rest.
    with contextlib.suppress(*((OomKilled,) if takes_all else ())):
        await still_serves(bombed, ended, one_limit=one_limit)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("burns_s", [0, 2])
async def test_the_sandbox_can_be_asked_while_it_burns(client: Client, neighbour: Neighbour, burns_s: float) -> None:
    """Usage, the list and a cancel come through in the middle of a fork bomb, and nothing of that is left."""
    # Room for as many processes as it may have: it is to burn, and not to end.
    async with await client.create(IMAGE, memory="1Gi", cpu=1) as bombed:
        async with await bombed.spawn("b() { b | b & }; b; sleep 600", stdin=False) as process:
            await asyncio.sleep(burns_s)
            await in_time(bombed.usage())
            listed = await in_time(bombed.processes.list())
            assert process.exec_id in {item.exec_id for item in listed if item.running}
            await in_time(process.kill())
            assert (await in_time(process.wait())).end == "cancelled"
        await until_more(neighbour)
        await serves_again(bombed, TOLD_WITHIN_S)
        await until(lambda: gone(bombed))


@pytest.mark.timeout(300)
async def test_a_million_files_are_bounded_by_their_time(
    bombed: Sandbox, neighbour: Neighbour, one_limit: bool
) -> None:
    """As many as a few seconds give; listing them is bounded by the limit, and removing the lot by nothing."""
    program = "import os\nfor n in range(1_000_000):\n  os.close(os.open(f'/tmp/many/{n}', os.O_CREAT | os.O_WRONLY))"
    # More than are asked for below, however few a busy machine makes in time.
    await bombed.exec("mkdir /tmp/many; cd /tmp/many; touch $(seq -f first-%g 2000)", check=True)
    # Under gVisor they are memory, but of 256 MiB these take less than half.
    ended = await goes_off(bombed, f'python3 -c "{program}"', {"deadline"}, timeout=4)
    listed = await in_time(bombed.files.list("/tmp/many", limit=1_000))
    assert (len(listed), listed.truncated) == (1_000, True)
    await until_more(neighbour)
    await still_serves(bombed, ended, one_limit=one_limit)


async def test_a_full_disk_is_told_and_room_can_be_made(bombed: Sandbox, neighbour: Neighbour, one_limit: bool) -> None:
    """On the file system that an engine limits; under gVisor it is memory, and ends as that does."""
    end = "oom_killed" if one_limit else "exited"
    filled = await goes_off(bombed, "head -c 10G /dev/zero > /dev/shm/full", {end}, timeout=30)
    await until_more(neighbour)
    if one_limit:
        await still_serves(bombed, filled, one_limit=True)
        return
    assert (filled.exit_code, "No space left on device" in filled.stderr) == (1, True)
    with pytest.raises(NoSpace):
        await bombed.files.write("/dev/shm/more", b"x" * 100_000)
    await bombed.files.remove("/dev/shm/full")
    await bombed.files.write("/dev/shm/more", b"x" * 100_000)


async def test_output_without_end_is_drained_or_waits_and_ends_in_time(
    bombed: Sandbox, neighbour: Neighbour, one_limit: bool
) -> None:
    """10 GB, or what comes of them within a few seconds; what is kept of it is bounded."""
    endless = "head -c 10000000000 /dev/zero; head -c 10000000 /dev/zero >&2"
    ended = await goes_off(bombed, endless, {"deadline", "exited"}, timeout=8)
    assert len(ended.stdout_bytes) <= 2**25 < ended.stdout_total_bytes
    async with await bombed.spawn(["cat", "/dev/zero"]) as process:
        for _ in range(50):
            assert await anext(process.stdout)
        await in_time(process.kill())
    await until_more(neighbour)
    await still_serves(bombed, ended, one_limit=one_limit)


async def test_without_its_files_the_sandbox_tells_what_is_missing(bombed: Sandbox, neighbour: Neighbour) -> None:
    ended = await goes_off(bombed, "rm -rf --no-preserve-root / 2>/dev/null", {"exited"}, timeout=60)
    # What is mounted there, such as /proc, cannot go.
    assert ended.exit_code == 1
    with pytest.raises(InvalidArgument) as told:
        await in_time(bombed.exec(["/bin/echo", "alive"]))
    assert (told.value.details["reason"], told.value.is_infra) == ("command_not_found", False)
    # What needs no file of the image still works.
    await bombed.files.write("/word", b"kept")
    assert await bombed.files.read("/word") == b"kept"
    assert (await bombed.usage()).processes >= 0
    await until_more(neighbour)
