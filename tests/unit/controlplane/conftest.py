"""Unit tests of the control plane run in virtual time and touch no network."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from controlplane.telemetry import configure_log
from tests.support.virtual_time import VirtualTimeLoop
from tests.support.world import World, world


def pytest_asyncio_loop_factories() -> Mapping[str, type[asyncio.AbstractEventLoop]]:
    """Gives every test here a loop whose time jumps."""
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True, scope="session")
def quiet() -> None:
    """Tests look at answers, not at log lines."""
    configure_log("critical")


@pytest.fixture
async def plane() -> AsyncIterator[World]:
    """A control plane with a fake cluster that works at once."""
    async with world() as running:
        yield running
