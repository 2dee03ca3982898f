"""A deployment for each test, and the look at what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from swerex.runtime.abstract import CreateBashSessionRequest

from on_swe_rex.deployments import LABELS, started
from rollbox import Client
from rollbox_integrations.swe_rex import RollboxDeployment, RollboxRuntime


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest.fixture
async def deployment(client: Client) -> AsyncIterator[RollboxDeployment]:
    async with started() as deployment:
        yield deployment


@pytest.fixture
async def runtime(deployment: RollboxDeployment) -> RollboxRuntime:
    """A runtime with a session of the usual name."""
    await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=30))
    return deployment.runtime
