"""A real control plane and the real SDK over sockets, in virtual time."""

import asyncio
from collections.abc import Mapping

import pytest

from controlplane.telemetry import configure_log
from tests.support.virtual_time import VirtualTimeLoop


class WiredLoop(VirtualTimeLoop):
    """Time jumps once what is on its way between sockets has arrived."""

    def __init__(self) -> None:
        super().__init__(wire_s=0.002)


def pytest_asyncio_loop_factories() -> Mapping[str, type[asyncio.AbstractEventLoop]]:
    """Gives every test here such a loop."""
    return {"virtual": WiredLoop}


@pytest.fixture(autouse=True, scope="session")
def quiet() -> None:
    """What fails here is meant to fail."""
    configure_log("critical")
