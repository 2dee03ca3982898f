"""Commands that change their shell, in real sandboxes: each answers, waits, has ended, or is told."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client, Sandbox, terminal_shell
from rollbox import shell as shell_module
from tests.support.images import AGAINST_CLUSTER, IMAGE
from tests.support.shell_inputs import KINDS, Kind, expected, outcome

AT_A_TIME = 6
LOOK_S, LIMIT_S = (2.0, 3.0) if AGAINST_CLUSTER else (0.5, 1.0)
# gVisor does not tell which signals a process ignores.
UNTOLD = ("trap '' INT; true",) if AGAINST_CLUSTER else ()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.long
async def test_whatever_a_command_does_to_its_shell_is_told(
    client: Client, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    for module in (shell_module, terminal_shell):
        monkeypatch.setattr(module, "LOOK_AFTER_S", LOOK_S)
    async with await client.create(IMAGE) as sandbox:
        if not kind.bash:
            await sandbox.exec("for one in /bin/bash /usr/bin/bash; do rm -f $one; done", check=True)
        places = asyncio.Semaphore(AT_A_TIME)

        async def tried(command: str) -> str:
            async with places, await made(sandbox, kind) as shell:
                return await outcome(shell, command, LIMIT_S)

        wanted = {command: what for command, what in expected(kind).items() if command not in UNTOLD}
        came = await asyncio.gather(*map(tried, wanted))
    assert {one: what for one, what in zip(wanted, came, strict=True) if what != wanted[one]} == {}


async def made(sandbox: Sandbox, kind: Kind) -> shell_module.Shell | terminal_shell.TerminalShell:
    return await sandbox.shell(terminal=True) if kind.terminal else await sandbox.shell()
