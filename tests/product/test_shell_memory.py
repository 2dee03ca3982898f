"""A command of a shell that takes more memory than its sandbox has."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client
from rollbox.errors import Conflict, OomKilled
from tests.support.images import IMAGE
from tests.support.isolation import is_gvisor

GREEDY = "python3 -c 'x = [bytearray(10**6) for _ in range(10**5)]'"
LIMIT_S = 120


@pytest.mark.parametrize("terminal", [False, True])
async def test_it_is_told_as_an_exec_tells_it(client: Client, terminal: bool) -> None:
    async with await client.create(IMAGE, memory="96Mi") as sandbox, asyncio.timeout(LIMIT_S):
        shell = await (sandbox.shell(terminal=True) if terminal else sandbox.shell())
        await shell.run("A=kept")
        result = await shell.run(GREEDY)
        assert result.end == "oom_killed"
        if await is_gvisor(client):
            # One limit for all that is in the sandbox: it ends with the command.
            assert result.shell_ended
            with pytest.raises((Conflict, OomKilled)):
                await shell.run("true")
            return
        assert (result.exit_code, result.signal, result.shell_ended) == (None, 9, False)
        assert (await shell.run("echo $A")).stdout == "kept\n"
