"""An environment of Harbor for each test, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from on_harbor.trials import LABELS, started
from rollbox import Client
from rollbox_integrations.harbor import RollboxEnvironment


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest.fixture
async def box(client: Client, tmp_path: Path) -> AsyncIterator[RollboxEnvironment]:
    async with started(tmp_path) as one:
        yield one
