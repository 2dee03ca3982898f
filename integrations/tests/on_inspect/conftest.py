"""A sandbox of inspect's for each test, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from on_inspect.samples import LABELS, sample
from rollbox import Client
from rollbox_integrations.inspect import RollboxSandboxEnvironment


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest.fixture
async def sandbox_env(client: Client) -> AsyncIterator[RollboxSandboxEnvironment]:
    # Three of the permission checks can only pass where the default user is not root.
    async with sample(user="1000", cwd="/tmp") as environment:
        yield environment
