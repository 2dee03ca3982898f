"""A sandbox of NeMo Gym for each test, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from nemo_gym.sandbox import AsyncSandbox

from on_nemo_gym.sandboxes import LABELS, started
from rollbox import Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest.fixture
async def box(client: Client) -> AsyncIterator[AsyncSandbox]:
    async with started() as one:
        yield one
