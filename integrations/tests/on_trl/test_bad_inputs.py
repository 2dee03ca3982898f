"""What is bad for any host, by the tool of TRL's environments, which has the code at the end of an empty output."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bad_inputs import BadInputs, Box, Told
from on_trl.rollouts import rollout, sandbox_of, task
from rollbox_integrations.trl import SandboxUnavailable


class TestBadInputs(BadInputs):
    lost = SandboxUnavailable

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        with tempfile.TemporaryDirectory() as folder, rollout(task(Path(folder)), **options) as env:

            async def run(line: str) -> Told:
                told = await asyncio.to_thread(env.bash, line)
                return Told(126 if "argument list too long" in told else 0, told)

            yield Box(await asyncio.to_thread(sandbox_of, env), run)
