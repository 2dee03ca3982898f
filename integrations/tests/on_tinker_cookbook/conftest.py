"""A sandbox for each test, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from on_tinker_cookbook.boxes import LABELS, created
from rollbox import Client
from rollbox_integrations.tinker_cookbook import RollboxSandbox


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest.fixture
async def box(client: Client) -> AsyncIterator[RollboxSandbox]:
    async with created() as box:
        yield box
