"""What is bad for any host, by deepagents' backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bad_inputs import BadUsers, Box, Told
from on_deepagents.conftest import IMAGE
from rollbox_integrations.deepagents import RollboxSandbox, SandboxUnavailable


class TestBadInputs(BadUsers):
    lost = SandboxUnavailable
    wrong = ValueError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        with RollboxSandbox(IMAGE, memory="512Mi", egress="offline", **options) as backend:

            async def run(line: str) -> Told:
                result = await backend.aexecute(line)
                assert result.exit_code is not None
                return Told(result.exit_code, result.output)

            yield Box(backend.sandbox.id, run)
