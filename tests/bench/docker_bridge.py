"""What Docker's bridge adds to the SDK: execs of `true`, alone and many at once, each as Docker's SDK does it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from rollbox import Client
from tests.bench.bridge import exec_records
from tests.bench.record import Record
from tests.bridges.running import docker
from tests.support.images import ON_ENGINE
from tests.support.stack import Stack

FOREVER: Final = ("tail", "-f", "/dev/null")


class Daemon:
    """Calls of the Engine API."""

    def __init__(self, path: str, http: aiohttp.ClientSession) -> None:
        self._path = path
        self._http = http

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """A call; its answer's JSON, None where it has none."""
        async with self._http.request(method, f"http://docker{path}", json=body) as answer:
            assert answer.ok, await answer.text()
            data = await answer.read()
        return json.loads(data) if data else None

    async def true(self, container: str) -> None:
        """Run `true`: create, start over a connection of its own until it ends, and ask how it has ended."""
        body = {"Cmd": ["true"], "AttachStdout": True, "AttachStderr": True}
        made = (await self.call("POST", f"/containers/{container}/exec", body))["Id"]
        reader, writer = await asyncio.open_unix_connection(self._path)
        head = f"POST /exec/{made}/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 101")
        writer.close()
        assert (await self.call("GET", f"/exec/{made}/json"))["ExitCode"] == 0


@asynccontextmanager
async def _container(daemon: Daemon) -> AsyncIterator[str]:
    body = {"Image": ON_ENGINE, "Cmd": FOREVER, "Entrypoint": [], "HostConfig": {"NetworkMode": "none"}}
    made = (await daemon.call("POST", "/containers/create", body))["Id"]
    await daemon.call("POST", f"/containers/{made}/start")
    yield made
    await daemon.call("DELETE", f"/containers/{made}?force=1")


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: half a minute."""
    async with docker(stack) as environ, Client(stack.url, stack.api_key) as client:
        path = environ["DOCKER_HOST"].removeprefix("unix://")
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path, limit=0)) as http,
            _container(daemon := Daemon(path, http)) as container,
            await client.create(ON_ENGINE) as sandbox,
        ):
            return await exec_records("Docker's bridge", lambda: daemon.true(container), sandbox)
