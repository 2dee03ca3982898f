"""What is bad for any host, by tinker-cookbook's sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tinker_cookbook.sandbox import SandboxTerminatedError

from bad_inputs import BadUsers, Box, Told
from on_tinker_cookbook.boxes import created


class TestBadInputs(BadUsers):
    lost = SandboxTerminatedError
    wrong = ValueError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        async with created(**options) as sandbox:

            async def run(line: str) -> Told:
                result = await sandbox.run_command(line)
                return Told(result.exit_code, result.stdout + result.stderr)

            yield Box(sandbox.sandbox_id, run)
