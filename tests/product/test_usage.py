"""What a sandbox uses, seen from inside: the figures move with what the test does."""

from __future__ import annotations

import time

from rollbox import Client, Sandbox
from tests.support.command_line import answer, rollbox
from tests.support.images import IMAGE
from tests.support.installed import Installed
from tests.support.odd_images import ON_CLUSTER
from tests.support.stack import Product
from tests.support.waiting import until

MIB = 2**20
# Both want a whole processor for as long.
TWO_BUSY = "for one in 1 2; do timeout 4 sh -c 'while :; do :; done' & done; wait"
# What two of them may take in a second: their limit, and the allowance of the sidecar.
MOST_MS_A_SECOND = 300 + 100


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
    if ON_CLUSTER:
        await until(lambda: disk_follows(shared))
    else:
        assert (during.disk_bytes, during.disk_limit_bytes) == (None, None), "the disk of the machine is not its own"


async def _is_quiet(sandbox: Sandbox) -> bool:
    """Whether nothing runs but what asks: the spawner, a shell and its two programs."""
    return (await sandbox.exec("ls /proc | grep -c '^[0-9]'")).stdout == "4\n"


async def disk_follows(sandbox: Sandbox) -> bool:
    """Whether the disk grows by what is written."""
    await sandbox.exec("rm -f /var/tmp/data", check=True)
    before = await sandbox.usage()
    await sandbox.exec("head -c 50000000 /dev/urandom > /var/tmp/data", check=True)
    after = (await sandbox.usage()).disk_bytes
    return after is not None and before.disk_bytes is not None and after >= before.disk_bytes + 40_000_000


async def test_cpu_time_is_time_on_processors_or_is_marked_as_more(stack: Product, client: Client) -> None:
    counted_inside = isinstance(stack, Installed) and not await stack.component("node")
    async with await client.create(IMAGE, cpu=(0.01, 0.3), memory="256Mi") as sandbox:
        began_s, before = time.monotonic(), await sandbox.usage()
        await sandbox.exec(TWO_BUSY)
        after, lived_s = await sandbox.usage(), time.monotonic() - began_s
        assert after.cpu_counted_by == before.cpu_counted_by == ("sandbox" if counted_inside else "node")
        assert after.cpu_ms > before.cpu_ms
        if not counted_inside:
            # A tenth for the periods in which a limit is kept, which begin and end beside the looks.
            assert after.cpu_ms - before.cpu_ms <= 1.1 * MOST_MS_A_SECOND * lived_s


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
