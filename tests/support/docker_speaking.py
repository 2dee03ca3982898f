"""Speaks Docker's Engine API without any of its clients, so that tests can say what no client would."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from rollbox_bridges.docker.server import Bridge
from rollbox_bridges.docker.settings import Settings
from tests.support.gateway_fake import FakeGateway


@dataclass(frozen=True)
class Answer:
    """An answer: its status and its body."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The objects of a stream of JSON."""
        return [json.loads(line) for line in self.body.splitlines() if line.strip()]


@dataclass
class Speaker:
    """A client without rules.

    Attributes:
        socket: of the bridge.
    """

    socket: Path
    http: aiohttp.ClientSession

    async def call(
        self, method: str, path: str, body: Any = None, *, data: bytes | None = None, **query: str
    ) -> Answer:
        """A call with JSON, or with data as they are."""
        sent: dict[str, Any] = {"json": body} if data is None else {"data": io.BytesIO(data)}
        async with self.http.request(method, f"http://docker{path}", params=query, **sent) as answer:
            return Answer(answer.status, await answer.read())

    async def started(self, *argv: str, **fields: Any) -> str:
        """The id of a container that runs a command."""
        body = {"Image": "python:1", "Cmd": argv, "Entrypoint": [], **fields}
        made = await self.call("POST", "/containers/create", body)
        assert made.status == 201, made
        assert (await self.call("POST", f"/containers/{made.json['Id']}/start")).status == 204
        return str(made.json["Id"])

    async def exec_of(self, container: str, *argv: str) -> str:
        """The id of a command that is to run in a container."""
        body = {"Cmd": argv, "AttachStdout": True, "AttachStderr": True}
        return str((await self.call("POST", f"/containers/{container}/exec", body)).json["Id"])


def context(files: Mapping[str, str]) -> bytes:
    """The archive of a build's context."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


@asynccontextmanager
async def speaking(fake: FakeGateway, socket: Path, **settings: Any) -> AsyncIterator[Speaker]:
    """Who speaks to a bridge on this test's event loop; the bridge finds its key in the environment."""
    bridge = Bridge(Settings(url=fake.url, **settings))
    runner = bridge.runner()
    await runner.setup()
    try:
        await web.UnixSite(runner, socket).start()
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as http:
            yield Speaker(socket, http)
    finally:
        await runner.cleanup()
        await bridge.aclose()
