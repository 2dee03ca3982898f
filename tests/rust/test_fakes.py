"""The fakes of the gateway's Rust tests pass the suites of the parts that they stand for, over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.errors import Code
from controlplane.wire.routes_pb2_grpc import RoutesStub
from tests.contract.agent_suite import AgentSuite, Called, called
from tests.contract.agent_suite import channel as channel_to
from tests.contract.answers_suite import AnswersSuite, Asked
from tests.contract.routes_suite import Feed, RoutesSuite
from tests.support.eventually import eventually
from tests.support.installed import ROOT

BUILD = ("setup/cargo.sh", "build", "--locked", "--quiet", "--package", "gateway", "--example", "fakes")


@pytest.fixture(scope="session")
def fakes() -> Path:
    """The program of the fakes; the tests of the Rust workspace have built it already."""
    manifest = ("--manifest-path", "gateway-rs/Cargo.toml", "--message-format", "json")
    done = subprocess.run([*BUILD, *manifest], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    (program,) = {found for line in done.stdout.splitlines() if (found := _program(line))}
    return Path(program)


def _program(line: str) -> str:
    message = json.loads(line)
    return message.get("executable") or "" if message.get("target", {}).get("name") == "fakes" else ""


@asynccontextmanager
async def running(fakes: Path, what: str, socket: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A fake that serves at a socket while the block runs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(fakes, what, socket, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    try:
        await eventually(socket.exists)
        yield process
    finally:
        process.stdin.close()
        assert await process.wait() == 0


class TestFakeSidecar(AgentSuite):
    """See `AgentSuite`."""

    @pytest.fixture
    async def sidecar(self, fakes: Path, tmp_path: Path) -> AsyncIterator[Called]:
        socket = tmp_path / "agent.sock"
        async with running(fakes, "sidecar", socket), channel_to(f"unix:{socket}") as channel:
            yield called(channel, "token", "/folder")


@dataclass(frozen=True)
class FakeFeed:
    """A fake feed, told by lines what happens."""

    stub: Any
    process: asyncio.subprocess.Process

    async def say(self, line: str) -> None:
        """Returns once it has happened."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        assert await self.process.stdout.readline() == b"ok\n"

    async def push(self, sandbox_id: str) -> None:
        await self.say(f"push {sandbox_id} 1")

    async def end(self, sandbox_id: str, cause: Code) -> None:
        await self.say(f"end {sandbox_id} 1 {cause}")


class TestFakeFeed(RoutesSuite):
    """See `RoutesSuite`."""

    @pytest.fixture
    async def feed(self, fakes: Path, tmp_path: Path) -> AsyncIterator[Feed]:
        socket = tmp_path / "routes.sock"
        async with running(fakes, "feed", socket) as process, channel_to(f"unix:{socket}") as channel:
            feed = FakeFeed(RoutesStub(channel), process)  # type: ignore[no-untyped-call]
            await feed.say("know sb-1 1")
            yield feed


class TestFakeControlPlane(AnswersSuite):
    """See `AnswersSuite`."""

    @pytest.fixture
    async def asked(self, fakes: Path, tmp_path: Path) -> AsyncIterator[Asked]:
        socket = tmp_path / "api.sock"
        async with (
            running(fakes, "controlplane", socket),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(os.fspath(socket))) as session,
        ):
            yield Asked(session, "rbx_test")
