"""What is bad for any host, by uni-agent's sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bad_inputs import BadUsers, Box, Told
from on_uni_agent.conftest import made
from rollbox_integrations.uni_agent import SandboxLostError


class TestBadInputs(BadUsers):
    lost = SandboxLostError
    wrong = ValueError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        async with made(**options) as sandbox:

            async def run(line: str) -> Told:
                result = await sandbox.exec_shell(line)
                return Told(result.exit_code, result.stdout + result.stderr)

            yield Box(sandbox.sandbox.id, run)
