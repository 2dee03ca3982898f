"""Over streamable HTTP: the same tools, and who may call them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from on_mcp.serving import NAMED, ROLLBOX, WORDS, created
from on_mcp.test_calls import until
from rollbox import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def listening(*options: str) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """A server; gives its address and what to send."""
    program = await asyncio.create_subprocess_exec(
        ROLLBOX,
        *WORDS,
        "--listen",
        "127.0.0.1:0",
        "--json",
        *options,
        env={**os.environ, **NAMED},
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    told = json.loads(await program.stdout.readline())
    try:
        yield told["url"], told["headers"]
    finally:
        program.terminate()
        assert await program.wait() == 0


@asynccontextmanager
async def connected(url: str, headers: dict[str, str], mode: str = "auto") -> AsyncIterator[McpClient]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=300) as http,
        McpClient(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_tools_work_and_a_cancelled_command_is_killed(platform: Client, mode: str) -> None:
    async with listening() as (url, headers), connected(url, headers, mode) as client:
        call = await created(client)
        heard: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        arguments: dict[str, Any] = {"sandbox_id": call.sandbox_id, "command": "sleep 5; echo done"}
        done = await client.call_tool("run_command", arguments, progress_callback=hear)
        assert (done.structured_content["stdout"], len(heard) >= 1) == ("done\n", True)
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run_command", {**arguments, "command": "sleep 315"})
            await until(call, "pgrep -f 'sleep [3]15'", 0)
            group.cancel_scope.cancel()
        await until(call, "pgrep -f 'sleep [3]15'", 1)


async def test_sandboxes_outlive_a_connection_and_end_with_the_server(platform: Client) -> None:
    async with listening() as (url, headers):
        async with connected(url, headers) as client:
            call = await created(client)
        async with connected(url, headers) as client:
            call.client = client
            assert (await call("run_command", command="echo again"))["stdout"] == "again\n"
    assert (await platform.get(call.sandbox_id)).end is not None


async def test_who_has_not_the_key_or_comes_from_elsewhere_is_refused(platform: Client) -> None:
    async with listening("--origin", "http://localhost:6274") as (url, headers), aiohttp.ClientSession() as session:

        async def status(**sent: str) -> int:
            async with session.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=sent) as answer:
                return answer.status

        assert await status() == 401
        assert await status(Authorization="Bearer wrong") == 401
        assert await status(**headers, Host="rebound.example.org") == 421
        assert await status(**headers, Origin="http://evil.example.org") == 403
        # It is let in, and then told what is wrong with such a message.
        assert await status(**headers, Origin="http://localhost:6274") not in {401, 403, 421}


async def test_the_key_is_that_of_a_file(platform: Client, tmp_path: Any) -> None:
    file = tmp_path / "key"
    file.write_text("a key is 16 long\n".replace(" ", "-"))
    async with listening("--key-file", str(file)) as (url, headers):
        assert headers == {"Authorization": "Bearer a-key-is-16-long"}
        async with connected(url, headers) as client:
            assert len((await client.list_tools()).tools) == 13
