"""A sandbox for each test, and the look at what is left."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from uni_agent.sandbox.base import SandboxConfig
from uni_agent.sandbox.registry import SANDBOX_MODULES, build_sandbox

from rollbox import Client
from rollbox_integrations.uni_agent import RollboxSandbox

LABELS = {"rollbox.host": "uni-agent"}


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    monkeypatch.setitem(SANDBOX_MODULES, "rollbox", "rollbox_integrations.uni_agent")
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


def made(image: str = os.environ["ROLLBOX_TEST_IMAGE"], **kwargs: object) -> RollboxSandbox:
    """One that was not started, by uni-agent's registry."""
    given = {"memory": "512Mi", "egress": "offline", **kwargs}
    sandbox = build_sandbox(SandboxConfig(provider="rollbox", image=image, runtime_timeout=600, sandbox_kwargs=given))
    assert isinstance(sandbox, RollboxSandbox)
    return sandbox


@pytest.fixture
async def box(client: Client) -> AsyncIterator[RollboxSandbox]:
    async with made() as box:
        assert isinstance(box, RollboxSandbox)
        yield box
