"""Ports: addresses, waiting, raw connections, and the errors of each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, PortUnreachable, SandboxForgotten, StreamInterrupted
from tests.support.gateway_fake import FakeGateway, Fault
from tests.support.silent_port import silent_port

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def sandbox(client: Client) -> AsyncIterator[Sandbox]:
    async with await client.create("python:3.12-slim") as made:
        yield made


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """Run a server on this machine; yields its port. Closes all its connections at the end."""
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.append(asyncio.ensure_future(serve(reader, writer)))

    async with await asyncio.start_server(accepted, "127.0.0.1") as listening:
        yield listening.sockets[0].getsockname()[1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("port", [0, 65_536, -1, True, "80", 1.5])
async def test_what_is_no_port_is_refused_before_any_request(sandbox: Sandbox, fake: FakeGateway, port: int) -> None:
    asked = len(fake.requests)
    for call in (sandbox.ports.expose, sandbox.ports.close, sandbox.ports.wait, sandbox.ports.connect_tcp):
        with pytest.raises(InvalidArgument, match="1 to 65535"):
            await call(port)
    assert len(fake.requests) == asked


async def test_a_port_of_one_that_the_platform_does_not_know_any_more(sandbox: Sandbox, fake: FakeGateway) -> None:
    fake.fail("set_port", Fault("sandbox_not_found"))
    with pytest.raises(SandboxForgotten):
        await sandbox.ports.expose(80, public=True)


async def test_reads_give_at_most_what_was_asked_for(sandbox: Sandbox) -> None:
    async with server(echo) as port, await sandbox.ports.connect_tcp(port) as stream:
        await stream.write(b"abcde")
        assert [await stream.read(2), await stream.read(2), await stream.read(2)] == [b"ab", b"cd", b"e"]


async def test_nobody_there_and_a_broken_connection_are_told(sandbox: Sandbox) -> None:
    with silent_port() as silent, pytest.raises(PortUnreachable):
        await sandbox.ports.connect_tcp(silent)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with server(hang_up) as port, await sandbox.ports.connect_tcp(port) as stream:
        with pytest.raises(PortUnreachable, match="broke") as broken:
            await stream.read()
        assert broken.value.sandbox_id == sandbox.id


async def test_an_expired_token_is_renewed_for_a_connection(sandbox: Sandbox, fake: FakeGateway) -> None:
    fake.expire_tokens()
    async with server(echo) as port, await sandbox.ports.connect_tcp(port) as stream:
        await stream.write(b"x")
        assert await stream.read() == b"x"


async def test_a_closed_stream_leaves_no_task_and_sends_nothing(sandbox: Sandbox) -> None:
    before = asyncio.all_tasks()
    async with server(echo) as port:
        stream = await sandbox.ports.connect_tcp(port)
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(StreamInterrupted):
            await stream.write(b"x")
    assert {task for task in asyncio.all_tasks() - before if task.get_name() == "rollbox port"} == set()
