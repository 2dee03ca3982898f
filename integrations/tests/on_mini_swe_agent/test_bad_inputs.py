"""What is bad for any host, by mini-swe-agent's environments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bad_inputs import BadUsers, Box, Told
from interrupts import STARTED, interrupted
from on_mini_swe_agent.test_environment import made, running, sandbox_of
from rollbox.sync import Client
from rollbox_integrations.mini_swe_agent import SandboxUnavailable


class TestBadInputs(BadUsers):
    lost = SandboxUnavailable
    wrong = ValueError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        environment = await asyncio.to_thread(made, **options)

        async def run(line: str) -> Told:
            result = await asyncio.to_thread(environment.execute, {"command": line})
            return Told(result["returncode"], result["output"])

        try:
            yield Box(sandbox_of(environment).id, run)
        finally:
            await asyncio.to_thread(environment.cleanup)


def test_a_command_that_is_interrupted_is_killed(client: Client) -> None:
    with running() as box:
        with interrupted(sandbox_of(box)):
            box.execute({"command": f"touch {STARTED}; sleep 362"}, timeout=300)
        while box.execute({"command": "pgrep -fx 'sleep 362'"})["returncode"] == 0:
            pass
