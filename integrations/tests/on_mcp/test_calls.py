"""Calls that take long: progress, cancellation, and the end of the server while they run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import anyio
import pytest
from mcp_types import ClientCapabilities

from on_mcp.serving import NAMED, ROLLBOX, WORDS, Calls, created, served
from rollbox import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOLD = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


async def until(call: Calls, command: str, code: int) -> None:
    """Wait until a command of the sandbox ends with a code."""
    while (await call("run_command", command=command))["exit_code"] != code:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_a_long_command_tells_its_progress_and_a_cancelled_one_is_killed(
    platform: Client, mode: str, version: str
) -> None:
    async with served(mode=mode) as client:
        assert client.protocol_version == version
        call = await created(client)
        heard: list[tuple[float, float | None, str | None]] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append((progress, total, message))

        arguments = {"sandbox_id": call.sandbox_id, "command": "sleep 5", "timeout": 60}
        await client.call_tool("run_command", arguments, progress_callback=hear)
        assert len(heard) >= 1
        assert heard[0][1:] == (60, "Run a command: 2 s")

        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run_command", {**arguments, "command": "sleep 312"})
            await until(call, "pgrep -f 'sleep [3]12'", 0)
            group.cancel_scope.cancel()
        await until(call, "pgrep -f 'sleep [3]12'", 1)
        # A cell is interrupted, and its variables stay.
        await call("run_code", code="x = 5")
        async with anyio.create_task_group() as group:
            cell = "import subprocess\nsubprocess.run(['sleep', '313'])"
            group.start_soon(client.call_tool, "run_code", {"sandbox_id": call.sandbox_id, "code": cell})
            await until(call, "pgrep -f 'sleep [3]13'", 0)
            group.cancel_scope.cancel()
        assert (await call("run_code", code="x"))["value"] == "5"


async def test_a_create_that_is_cancelled_leaves_nothing(platform: Client) -> None:
    async with served() as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "create_sandbox", {})
            while not await platform.list({"rollbox.host": "mcp"}):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.02)
            group.cancel_scope.cancel()
        while [one for one in await platform.list({"rollbox.host": "mcp"}) if one.state != "ending"]:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.1)
        assert (await client.call_tool("list_sandboxes")).structured_content["sandboxes"] == []


@pytest.mark.parametrize("ending", ["stdin", "SIGTERM", "SIGINT", "SIGKILL"])
async def test_the_end_of_a_server_ends_its_sandboxes_and_what_they_run(platform: Client, ending: str) -> None:
    """By hand, since the client kills a server that ends slowly."""
    program = await asyncio.create_subprocess_exec(
        ROLLBOX, *WORDS, env={**os.environ, **NAMED}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdin is not None
    made = await asked(program, 1, "create_sandbox", {})
    sandbox_id = made["structuredContent"]["sandbox_id"]
    # A command runs when the server ends.
    await send(program, 2, "run_command", {"sandbox_id": sandbox_id, "command": "sleep 314"})
    looks = {"sandbox_id": sandbox_id, "command": "pgrep -f 'sleep [3]14'"}
    while (await asked(program, 3, "run_command", looks))["structuredContent"]["exit_code"] != 0:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.1)
    if ending == "stdin":
        program.stdin.close()
    else:
        program.send_signal(signal.Signals[ending])
    killed = ending == "SIGKILL"
    assert await program.wait() == (-signal.SIGKILL if killed else 0)
    while (record := await platform.get(sandbox_id)).end is None and killed:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.5)
    assert record.end is not None
    assert record.end.cause == ("lease_expired" if killed else "deleted")


async def send(program: asyncio.subprocess.Process, number: int, tool: str, arguments: dict[str, Any]) -> None:
    meta = {
        **TOLD,
        "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": ClientCapabilities().model_dump(exclude_none=True),
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"
    assert program.stdin is not None
    program.stdin.write(line.encode())
    await program.stdin.drain()


async def asked(
    program: asyncio.subprocess.Process, number: int, tool: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    await send(program, number, tool, arguments)
    assert program.stdout is not None
    while (told := json.loads(await program.stdout.readline())).get("id") != number:
        assert "error" not in told, told
    result: dict[str, Any] = told["result"]
    return result
