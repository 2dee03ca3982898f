"""A session for each test, and the look at what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from llm_sandbox import SandboxSession

from rollbox.sync import Client
from rollbox_integrations.llm_sandbox import RollboxSession

IMAGE = os.environ["ROLLBOX_TEST_IMAGE"]


def made(backend: str = "rollbox", **given: Any) -> RollboxSession:
    """One that is not open, as programs of llm-sandbox make it."""
    session = SandboxSession(backend=backend, **{"image": IMAGE, "memory": "512Mi", "egress": "offline", **given})
    assert isinstance(session, RollboxSession)
    return session


@pytest.fixture
def client() -> Iterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    with Client() as client:
        yield client
        assert [one.id for one in client.list({"rollbox.host": "llm-sandbox"}) if one.state != "ending"] == []


@pytest.fixture
def session(client: Client) -> Iterator[RollboxSession]:
    with made() as session:
        assert isinstance(session, RollboxSession)
        yield session
