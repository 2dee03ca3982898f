"""A server for the tests of a module, a sandbox of it for each, and the look at what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from mcp import Client as McpClient

from on_mcp.serving import LABELS, Calls, created, served
from rollbox import Client


@pytest_asyncio.fixture(loop_scope="module")
async def platform() -> AsyncIterator[Client]:
    """Another program's client; a sandbox that a test leaves behind fails the test."""
    async with Client() as client:
        yield client
        assert [record.id for record in await client.list(LABELS) if record.state != "ending"] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[McpClient]:
    """A client's scopes have to be left by the task that has entered them; those of a fixture are two."""
    made: asyncio.Future[McpClient] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with served() as client:
            made.set_result(client)
            await over.wait()

    holding = asyncio.create_task(hold())
    await asyncio.wait({holding, made}, return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        await holding
    yield made.result()
    over.set()
    await holding


@pytest_asyncio.fixture(loop_scope="module")
async def call(platform: Client, client: McpClient) -> AsyncIterator[Calls]:
    calls = await created(client)
    yield calls
    await client.call_tool("delete_sandbox", {"sandbox_id": calls.sandbox_id})
