"""The way of a build's steps to the network: from its builder by a sandbox's sidecar to what listens there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from grpc import StatusCode, aio

from controlplane.cluster.kubernetes.builds.builder import Builder, LeftError
from controlplane.cluster.kubernetes.builds.outside import FORWARDED, MOST_CONNECTIONS, PROGRAM, Outside
from controlplane.cluster.protocol.builds import BuildNetwork
from controlplane.errors import Problem
from controlplane.wire import agent_pb2, agent_pb2_grpc
from tests.contract.kubernetes.test_pod_builds import World, world
from tests.support import fake_builder

__all__ = ["world"]
TOKEN = "the token of a builder"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Sidecar(agent_pb2_grpc.AgentServicer):
    """That of the sandbox: connections to the program's port reach a server of the test.

    Attributes:
        files: what was written, by path.
        ran: commands.
        port: of the server.
        listens: whether the program does.
    """

    def __init__(self, port: int) -> None:
        self.files: dict[bytes, bytes] = {}
        self.ran: list[list[str]] = []
        self.port = port
        self.listens = True

    async def WriteFile(self, frames: Any, context: Any) -> agent_pb2.FileInfo:  # noqa: N802 - the names of the protocol
        assert dict(context.invocation_metadata())["authorization"] == "Bearer t"
        seen = [frame async for frame in frames]
        assert (seen[0].mode, seen[0].user, seen[0].parents, seen[-1].eof) == (0o755, "0", True, True)
        self.files[seen[0].path] = b"".join(frame.data for frame in seen)
        return agent_pb2.FileInfo()

    async def Start(self, request: Any, context: Any) -> agent_pb2.Started:  # noqa: N802
        del context
        self.ran.append(list(request.argv))
        return agent_pb2.Started()

    async def WaitPort(self, request: Any, context: Any) -> agent_pb2.PortState:  # noqa: N802
        del context
        assert request.port == FORWARDED[1]
        return agent_pb2.PortState(listening=self.listens)

    async def Connect(self, frames: Any, context: Any) -> AsyncIterator[agent_pb2.PortFrame]:  # noqa: N802
        first = await anext(aiter(frames))
        assert first.port == FORWARDED[1]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            await context.abort(StatusCode.UNAVAILABLE, str(error))
        yield agent_pb2.PortFrame()

        async def up() -> None:
            async for frame in frames:
                writer.write(frame.data)
                if frame.eof:
                    writer.write_eof()

        going = asyncio.create_task(up())
        try:
            while data := await reader.read(65_536):
                yield agent_pb2.PortFrame(data=data)
            yield agent_pb2.PortFrame(eof=True)
            await going
        finally:
            going.cancel()
            writer.close()


@asynccontextmanager
async def sandbox(port: int) -> AsyncIterator[tuple[Sidecar, BuildNetwork]]:
    server, sidecar = aio.server(options=[("grpc.so_reuseport", 0)]), Sidecar(port)
    agent_pb2_grpc.add_AgentServicer_to_server(sidecar, server)  # type: ignore[no-untyped-call]
    at = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield sidecar, BuildNetwork("sb-1", f"http://127.0.0.1:{at}", "t", "")
    await server.stop(grace=None)


@asynccontextmanager
async def serving(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        server.close()


@dataclass
class Handing:
    """The part of a builder that hands connections over, byte for byte.

    Attributes:
        asking: the control plane's connections, each of which takes one of a step.
        asked: how many it has had.
    """

    asking: asyncio.Queue[Streams] = field(default_factory=asyncio.Queue)
    asked: int = 0
    all: list[asyncio.StreamWriter] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert f"Authorization: Bearer {TOKEN}\r\n" in head
        if head.startswith("GET /program "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nbytes")
            writer.close()
            return
        assert head.startswith("POST /connections ")
        self.asked += 1
        self.all.append(writer)
        self.asking.put_nowait((reader, writer))

    async def step(self) -> Streams:
        """What a step has that connects: the other end of its connection."""
        reader, writer = await self.asking.get()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n")
        return reader, writer


@asynccontextmanager
async def way(port: int) -> AsyncIterator[tuple[Handing, Sidecar]]:
    """A builder and a sandbox, and the way between them, to what listens on a port."""
    handing = Handing()
    async with (
        serving(handing.answer) as at,
        sandbox(port) as (sidecar, network),
        Builder.open(f"http://127.0.0.1:{at}", TOKEN, 1) as builder,
    ):
        try:
            async with Outside.open(network, builder):
                yield handing, sidecar
        finally:
            for one in handing.all:
                one.close()


async def shouts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers once all has come."""
    writer.write((await reader.read()).upper())
    await writer.drain()
    writer.close()


async def test_bytes_of_steps_go_both_ways_and_each_way_ends_by_itself() -> None:
    async with serving(shouts) as port, way(port) as (handing, sidecar):
        assert sidecar.files == {PROGRAM.encode(): b"bytes"}
        assert sidecar.ran == [[PROGRAM, "forward", "127.0.0.1:3129", "127.0.0.1:3128"]]

        async def asked(text: bytes) -> bytes:
            reader, writer = await handing.step()
            writer.write(text)
            await writer.drain()
            writer.write_eof()
            try:
                return await reader.read()
            finally:
                writer.close()

        many = [b"a%d" % number * 100_000 for number in range(9)]
        assert await asyncio.gather(*map(asked, many)) == [text.upper() for text in many]


async def test_one_that_the_sandbox_does_not_take_is_closed_and_the_next_is_carried() -> None:
    async with serving(shouts) as port, way(port) as (handing, sidecar):
        sidecar.port = 1
        reader, writer = await handing.step()
        assert await reader.read() == b""
        writer.close()
        sidecar.port = port
        reader, writer = await handing.step()
        writer.write(b"again")
        writer.write_eof()
        assert await reader.read() == b"AGAIN"
        writer.close()


async def test_a_build_has_so_many_connections_at_once_and_the_next_one_once_one_is_over() -> None:
    held: list[asyncio.StreamWriter] = []

    async def holds(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        writer.write(b"begun")
        await reader.read()
        writer.close()

    async with serving(holds) as port, way(port) as (handing, _):
        steps = [await handing.step() for _ in range(MOST_CONNECTIONS)]
        for reader, _ in steps:
            assert await reader.readexactly(5) == b"begun"
        assert (handing.asked, handing.asking.qsize()) == (MOST_CONNECTIONS, 0), "nobody takes another one"
        steps[0][1].write_eof()
        assert await steps[0][0].read() == b""
        reader, writer = await handing.step()
        assert await reader.readexactly(5) == b"begun"
        for one in (writer, *(writer for _, writer in steps)):
            one.close()


async def test_the_way_ends_with_the_build_whatever_is_open() -> None:
    hung: list[Streams] = []

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung.append((reader, writer))
        writer.write(b"begun")

    async with serving(hangs) as port:
        async with way(port) as (handing, _):
            reader, writer = await handing.step()
            assert await reader.readexactly(5) == b"begun"
        assert await reader.read() == b""
        assert await hung[0][0].read() == b""
        for one in (writer, hung[0][1]):
            one.close()


async def test_a_sandbox_that_does_not_answer_ends_the_build() -> None:
    handing = Handing()
    async with (
        serving(handing.answer) as at,
        Builder.open(f"http://127.0.0.1:{at}", TOKEN, 1) as builder,
    ):
        with pytest.raises(Problem):
            async with Outside.open(BuildNetwork("sb-1", "http://127.0.0.1:1", "t", ""), builder):
                pass
        async with sandbox(1) as (sidecar, network):
            sidecar.listens = False
            with pytest.raises(Problem, match="does not run in sb-1"):
                async with Outside.open(network, builder):
                    pass
    assert handing.asked == 0


async def test_a_builder_that_is_gone_hands_nothing_over() -> None:
    async with Builder.open("http://127.0.0.1:1", TOKEN, 1) as builder:
        with pytest.raises(LeftError):
            await builder.connection()


async def test_a_build_with_a_network_has_the_relay_and_the_package_cache_and_its_image_neither(world: World) -> None:
    world.builder.makes({b"new": "+gzip"})
    async with sandbox(1) as (sidecar, network):
        plain = await world.plan("FROM base\nRUN x\n")
        await world.built(network=network)
        # The same image, however it came by what it has.
        assert plain.tag == (await world.plan("FROM base\nRUN x\n")).tag
    assert sidecar.files == {PROGRAM.encode(): fake_builder.PROGRAM}
    told = json.loads(world.builder.files["mark/wish.json"])
    assert told["network"] is True
    assert told["arguments"]["A"] == "1"
    assert told["arguments"]["http_proxy"] == told["arguments"]["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    first, *arguments, last = world.builder.files["mark/Dockerfile"].decode().splitlines()
    assert (first, last) == ("FROM rollbox/0 AS rollbox-0", "RUN x")
    assert 'ARG PIP_INDEX_URL="http://packages.rollbox.internal/pypi.org/simple/"' in arguments
    assert all(line.startswith("ARG ") for line in arguments)
