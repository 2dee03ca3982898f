"""What is bad for any host, by verifiers' runtimes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime

from bad_inputs import NOBODY, BadInputs, Box, Told
from on_verifiers.rollouts import backend, runtime


class TestBadInputs(BadInputs):
    lost = SandboxError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        async with runtime(**options) as one:

            async def run(line: str) -> Told:
                result = await one.run(["sh", "-c", line], {})
                return Told(result.exit_code, result.stdout + result.stderr)

            yield Box(backend(one).sandbox.id, run)


async def test_a_user_that_does_not_exist_is_told(box: Runtime) -> None:
    missing = await box.with_user(NOBODY).run(["true"], {})
    assert (missing.exit_code, "no such user" in missing.stderr) == (126, True)
