"""What a sandbox uses, seen from inside: the figures move with what the test does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from rollbox import Sandbox
from tests.support.stack import Product
from tests.support.waiting import until

MIB = 2**20


async def test_every_figure_follows_what_runs(shared: Sandbox) -> None:
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


def test_top_on_the_command_line(stack: Product, shared_id: str) -> None:
    environ = {**os.environ, "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key}
    command = [sys.executable, "-m", "rollbox", "top", shared_id]
    table = subprocess.run(command, env=environ, capture_output=True, check=True, text=True).stdout
    assert table.splitlines()[1].startswith(shared_id)
    told = subprocess.run([*command, "--json"], env=environ, capture_output=True, check=True).stdout
    assert json.loads(told)["sandboxes"][shared_id]["memory_bytes"] > 0
