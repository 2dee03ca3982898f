"""What is bad for any host, by openai-agents' sessions; they keep bytes as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.sandbox.errors import ExecTransportError

from bad_inputs import BadInputs, Box, Told
from on_openai_agents.sessions import session
from rollbox_integrations.openai_agents import sandbox_of


class TestBadInputs(BadInputs):
    lost = ExecTransportError
    undecodable = "\xff"

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        async with session(**options) as one:

            async def run(line: str) -> Told:
                result = await one.exec(line)
                return Told(result.exit_code, (result.stdout + result.stderr).decode("latin-1"))

            yield Box(sandbox_of(one).id, run)
