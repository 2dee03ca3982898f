"""Commands that change their shell: each answers, waits, has ended, or is told to answer no longer."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client, Sandbox, terminal_shell
from rollbox import shell as shell_module
from tests.support.gateway_fake import FakeGateway
from tests.support.shell_inputs import KINDS, Kind, expected, outcome

AT_A_TIME = 6
LOOK_S, LIMIT_S = 0.5, 1.0


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_whatever_a_command_does_to_its_shell_is_told(
    client: Client, fake: FakeGateway, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    for module in (shell_module, terminal_shell):
        monkeypatch.setattr(module, "LOOK_AFTER_S", LOOK_S)
    fake.real_execs = True
    fake.missing_commands = set() if kind.bash else {"bash"}
    sandbox, places = await client.create("python"), asyncio.Semaphore(AT_A_TIME)

    async def tried(command: str) -> str:
        async with places, await made(sandbox, kind) as shell:
            return await outcome(shell, command, LIMIT_S)

    wanted = expected(kind)
    came = await asyncio.gather(*map(tried, wanted))
    assert {one: what for one, what in zip(wanted, came, strict=True) if what != wanted[one]} == {}


async def made(sandbox: Sandbox, kind: Kind) -> shell_module.Shell | terminal_shell.TerminalShell:
    return await sandbox.shell(terminal=True) if kind.terminal else await sandbox.shell()
