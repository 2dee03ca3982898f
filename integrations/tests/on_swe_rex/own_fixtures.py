"""What SWE-ReX's own tests take from their `conftest`, which its source distribution has not, over this runtime."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest
import requests
import swerex.server
import uvicorn
from swerex.runtime.abstract import BashAction, CloseBashSessionRequest, Command, CreateBashSessionRequest

from on_swe_rex.deployments import made
from rollbox_integrations.swe_rex import RollboxRuntime

TEST_API_KEY: Final = "tests-of-swe-rex-alone"
_START_S: Final = 30


class _Action(BashAction):
    timeout: float | None = 5


class _Command(Command):
    timeout: float | None = 5


@dataclass
class RemoteServer:
    """Where SWE-ReX's server is."""

    port: int
    headers: dict[str, str] = field(default_factory=lambda: {"X-API-Key": TEST_API_KEY})


@pytest.fixture(scope="module")
def sandbox_runtime() -> Iterator[RollboxRuntime]:
    """One runtime for all of them, which leave it as it was; its image has the programs that they run."""
    deployment = made(image=os.environ["ROLLBOX_TEST_SWE_IMAGE"])
    asyncio.run(deployment.start())
    try:
        # They call it by its older name.
        naming = Command(command="ln -s $(command -v python3) /usr/local/bin/python", shell=True, check=True)
        asyncio.run(deployment.runtime.execute(naming))
        yield deployment.runtime
    finally:
        asyncio.run(deployment.stop())


@pytest.fixture
async def remote_runtime(sandbox_runtime: RollboxRuntime) -> AsyncIterator[RollboxRuntime]:
    """In the place of their client of a server on the tests' machine."""
    yield sandbox_runtime
    await sandbox_runtime.close()


@pytest.fixture
async def runtime_with_default_session(remote_runtime: RollboxRuntime) -> AsyncIterator[RollboxRuntime]:
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())


@pytest.fixture(scope="module")
def remote_server(sandbox_runtime: RollboxRuntime) -> Iterator[RemoteServer]:
    """SWE-ReX's server, whose runtime is this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swerex.server, "AUTH_TOKEN", TEST_API_KEY)
        patch.setattr(swerex.server, "runtime", sandbox_runtime)
        with _serving() as server:
            # The first request is the slowest, and they wait for 150 ms.
            requests.get(f"http://127.0.0.1:{server.port}/is_alive", headers=server.headers, timeout=_START_S)
            yield server


@contextmanager
def _serving() -> Iterator[RemoteServer]:
    serving = uvicorn.Server(uvicorn.Config(swerex.server.app, host="127.0.0.1", port=0, log_level="error"))
    with serving.config.bind_socket() as socket:
        # So that what comes before the server does waits.
        socket.listen()
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [socket]})
        thread.start()
        try:
            yield RemoteServer(socket.getsockname()[1])
        finally:
            serving.should_exit = True
            thread.join(_START_S)
    assert not thread.is_alive()
