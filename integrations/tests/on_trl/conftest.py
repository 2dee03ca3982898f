"""Environments as TRL's trainers make them, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from on_trl.rollouts import LABELS
from rollbox import Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []
