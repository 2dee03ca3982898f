"""What is bad for any host, by Harbor's environments."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import HealthcheckError

from bad_inputs import BadInputs, Box, Told
from on_harbor.trials import started
from rollbox_integrations.harbor import RollboxEnvironment


class TestBadInputs(BadInputs):
    lost = HealthcheckError

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Box]:
        with tempfile.TemporaryDirectory() as folder:
            async with started(Path(folder), **options) as one:

                async def run(line: str) -> Told:
                    result = await one.exec(line)
                    return Told(result.return_code, (result.stdout or "") + (result.stderr or ""))

                yield Box(one.sandbox.id, run)


async def test_a_cancelled_command_is_killed(box: RollboxEnvironment) -> None:
    running = asyncio.create_task(box.exec("sleep 361"))
    while (await box.exec("pgrep -fx 'sleep 361'")).return_code:
        pass
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    while not (await box.exec("pgrep -fx 'sleep 361'")).return_code:
        pass
