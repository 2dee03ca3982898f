"""Interpreters that sandboxes of a pool keep running: who gets one, and what is bound at the claim."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rollbox import Client, Pool, Sandbox
from rollbox.interpreter.program import chosen
from tests.support.images import IMAGE
from tests.support.installed import own_cluster
from tests.support.odd_images import ON_CLUSTER, OddImage, program, provided
from tests.support.waiting import until

# Another amount than the other tests ask for: nobody else claims from it.
MEMORY = ("64Mi", "336Mi")
PID = "import os; os.getpid()"
# The interpreters that wait or run, by what they are started with; what looks for it does not have it itself.
SIZE = str(len(chosen("python", None).source))
THERE = f"grep -laz '[{SIZE[0]}]{SIZE[1:]}' /proc/[0-9]*/cmdline | cut -d/ -f3"


@pytest.fixture
async def pool(client: Client) -> AsyncIterator[Pool]:
    name = f"t{uuid.uuid4().hex[:8]}"
    try:
        await client.set_pool(name, IMAGE, 1, memory=MEMORY, interpreter="python")
        ready = await until(lambda: _ready(client, name))
        assert ready is not None
        yield ready
    finally:
        await client.remove_pool(name)


async def _ready(client: Client, name: str) -> Pool | None:
    pool = await client.pool(name)
    assert not pool.failures, pool
    return pool if (pool.ready, pool.outdated) == (1, 0) else None


async def _failed(client: Client, name: str) -> Pool | None:
    pool = await client.pool(name)
    return pool if pool.failures else None


async def waiting(sandbox: Sandbox) -> list[str]:
    """The pids of its interpreters."""
    assert sandbox.record.source == "warm"
    return (await sandbox.exec(THERE)).stdout.split()


@pytest.mark.core
async def test_the_first_one_that_is_asked_for_is_the_one_that_waits(client: Client, pool: Pool) -> None:
    assert pool.interpreter == "python"
    async with await Sandbox.create(IMAGE, memory=MEMORY, client=client) as sandbox:
        there = await waiting(sandbox)
        assert len(there) == 1
        # Nobody has it yet, and it is no command of anybody.
        assert [one.running for one in await sandbox.processes.list()] == [False]
        async with await sandbox.interpreter() as one, await sandbox.interpreter() as two:
            pids = [(await python.run(PID)).text for python in (one, two)]
            assert pids[0] == there[0]
            assert pids[1] not in there
            listed = {shown.exec_id: shown.pid for shown in await sandbox.processes.list() if shown.running}
            assert {str(listed[python.exec_id or ""]) for python in (one, two)} == set(pids)
            late = await one.run("import time\nkept = 1\ntime.sleep(600)", timeout=1)
            assert (late.end, (await one.run("kept")).text) == ("deadline", "1")
        assert await waiting(sandbox) == []


async def test_what_the_create_binds_is_bound_before_it_is_asked_for(client: Client, pool: Pool) -> None:
    code = "import os; os.environ['WHO'], os.getcwd(), os.getuid(), os.getpid()"
    late = {"env": {"WHO": "me"}, "cwd": "/tmp", "user": "1:1"}
    async with await Sandbox.create(IMAGE, memory=MEMORY, client=client, **late) as sandbox:  # type: ignore[arg-type]
        there = await until(lambda: _one(sandbox))
        async with await sandbox.interpreter() as python:
            assert (await python.run(code)).text == f"('me', '/tmp', 1, {there})"


async def _one(sandbox: Sandbox) -> str | None:
    """The pid of the interpreter that waits, once the one of before the claim is gone."""
    found = (await sandbox.exec(THERE, user="0")).stdout.split()
    owner = [(await sandbox.exec(f"stat -c %u /proc/{pid}", user="0")).stdout.strip() for pid in found]
    return found[0] if owner == ["1"] else None


async def test_another_directory_or_variable_is_another_interpreter(client: Client, pool: Pool) -> None:
    async with await Sandbox.create(IMAGE, memory=MEMORY, client=client) as sandbox:
        there = await waiting(sandbox)
        for given, right in (({"cwd": "/usr"}, "/usr"), ({"env": {"HOME": "/x"}}, "/x")):
            async with await sandbox.interpreter(**given) as python:
                cell = await python.run("import os; os.getcwd(), os.environ.get('HOME')")
                assert right in (cell.text or "")
                assert (await python.run(PID)).text not in there
        async with await sandbox.interpreter() as python:
            assert [(await python.run(PID)).text] == there


async def test_one_that_is_gone_is_missed_by_nobody(client: Client, pool: Pool) -> None:
    async with await Sandbox.create(IMAGE, memory=MEMORY, client=client) as sandbox:
        there = await waiting(sandbox)
        # It has been reaped when the command ends.
        await sandbox.exec(f"kill -9 {there[0]}; while [ -e /proc/{there[0]} ]; do sleep 0.1; done", check=True)
        async with await sandbox.interpreter() as python:
            cell = await python.run(PID)
            assert (cell.end, cell.restarted, cell.text in there) == ("finished", False, False)


async def test_without_the_option_others_take_their_place(client: Client, pool: Pool) -> None:
    changed = await client.change_pool(pool.name, interpreter="")
    assert changed.interpreter == ""
    await until(lambda: _ready(client, pool.name))
    async with await Sandbox.create(IMAGE, memory=MEMORY, client=client) as sandbox:
        assert await waiting(sandbox) == []
        async with await sandbox.interpreter() as python:
            assert (await python.run("6 * 7")).text == "42"


@pytest.mark.skipif(ON_CLUSTER and not own_cluster(), reason="there is no registry for such images")
async def test_an_image_that_has_no_python_is_told_by_the_pool(client: Client, tmp_path: Path) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    async with provided(OddImage([program()]), tmp_path) as image:
        await client.set_pool(name, image, 1, memory="128Mi", interpreter="python")
        try:
            told = await until(lambda: _failed(client, name))
            assert told is not None
            assert told.failures[0].code == "unsupported"
            assert "needs python3 (3.8 or newer)" in told.failures[0].detail
            assert told.failures[0].detail in told.why
        finally:
            await client.remove_pool(name)
