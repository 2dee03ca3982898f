"""What a sandbox uses, seen from inside: the figures move with what the test does."""

from __future__ import annotations

from rollbox import Sandbox
from tests.support.command_line import answer, rollbox
from tests.support.stack import Product
from tests.support.waiting import until

MIB = 2**20


async def test_every_figure_follows_what_runs(shared: Sandbox) -> None:
    # What tests before this one have left in it is being ended.
    await until(lambda: _is_quiet(shared))
    before = await shared.usage()
    assert before.memory_limit_bytes == 512 * MIB
    program = "x = bytearray(64 << 20)\nfor _ in range(30_000_000): pass\nprint('full', flush=True)\ninput()"
    async with await shared.spawn(["python3", "-c", program]) as process:
        assert await anext(process.stdout.lines()) == "full"
        during = await shared.usage()
        assert during.processes == before.processes + 1
        assert during.memory_bytes >= before.memory_bytes + 60 * MIB
        assert during.cpu_ms > before.cpu_ms + 100
    assert (await shared.usage()).cpu_ms >= during.cpu_ms, "the time of a process that ended is lost"
    await until(lambda: disk_follows(shared))


async def _is_quiet(sandbox: Sandbox) -> bool:
    """Whether nothing runs but what asks: the spawner, a shell and its two programs."""
    return (await sandbox.exec("ls /proc | grep -c '^[0-9]'")).stdout == "4\n"


async def disk_follows(sandbox: Sandbox) -> bool:
    """Whether the disk grows by what is written: on an engine it is the machine's, where others free some meanwhile."""
    await sandbox.exec("rm -f /var/tmp/data", check=True)
    before = await sandbox.usage()
    await sandbox.exec("head -c 50000000 /dev/urandom > /var/tmp/data", check=True)
    return (await sandbox.usage()).disk_bytes >= before.disk_bytes + 40_000_000


async def test_the_limit_of_processes_is_told_where_there_is_one(shared: Sandbox) -> None:
    limit = shared.record.pids_limit
    usage = await shared.usage()
    assert usage.processes_limit == limit
    async with await shared.spawn("for n in $(seq 20); do sleep 600 & done; wait"):

        async def seen() -> bool:
            return (await shared.usage()).processes >= usage.processes + 21

        await until(seen)


async def test_top_on_the_command_line(stack: Product, shared: Sandbox) -> None:
    status, table, err = await rollbox(stack, "top", shared.id)
    assert status == 0, err
    assert table.decode().splitlines()[1].startswith(shared.id)
    assert (await answer(stack, "top", shared.id))["sandboxes"][shared.id]["memory_bytes"] > 0
