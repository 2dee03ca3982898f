"""A runtime of verifiers for each test, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from verifiers.v1.runtimes import Runtime

from on_verifiers.rollouts import LABELS, runtime
from rollbox import Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest.fixture
async def box(client: Client) -> AsyncIterator[Runtime]:
    async with runtime() as one:
        yield one
