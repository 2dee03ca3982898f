"""What is bad for any host, by open-instruct's backends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bad_inputs import BadUsers, Box, Told
from interrupts import STARTED, interrupted
from on_open_instruct.conftest import given
from rollbox.sync import Client
from rollbox_integrations.open_instruct import RollboxBackend, SandboxLostError


class TestBadInputs(BadUsers):
    lost = SandboxLostError
    wrong = ValueError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        backend = RollboxBackend(**given(**options))
        await asyncio.to_thread(backend.start)
        assert backend.sandbox is not None

        async def run(line: str) -> Told:
            result = await asyncio.to_thread(backend.run_command, line)
            return Told(result.exit_code, result.stdout + result.stderr)

        try:
            yield Box(backend.sandbox.id, run)
        finally:
            await asyncio.to_thread(backend.close)


def test_a_command_that_is_interrupted_is_killed(client: Client) -> None:
    backend = RollboxBackend(**given())
    backend.start()
    assert backend.sandbox is not None
    with interrupted(backend.sandbox):
        backend.run_command(f"touch {STARTED}; sleep 363")
    while backend.run_command("pgrep -fx 'sleep 363'").exit_code == 0:
        pass
    backend.close()
