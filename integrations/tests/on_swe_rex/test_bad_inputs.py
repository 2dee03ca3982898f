"""What is bad for any host, by SWE-ReX's deployments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from swerex.runtime.abstract import Command

from bad_inputs import BadUsers, Box, Told
from on_swe_rex.deployments import started
from rollbox_integrations.swe_rex import SandboxUnavailableError


class TestBadInputs(BadUsers):
    lost = SandboxUnavailableError
    wrong = ValueError
    undecodable = "\\xff"

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        async with started(**options) as deployment:

            async def run(line: str) -> Told:
                result = await deployment.runtime.execute(Command(command=line, shell=True, timeout=60.0))
                assert result.exit_code is not None
                return Told(result.exit_code, result.stdout + result.stderr)

            yield Box(deployment.sandbox.id, run)
