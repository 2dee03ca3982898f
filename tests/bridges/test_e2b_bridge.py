"""E2B's bridge on the product: a restart under open streams, other owners' ids, servers in a sandbox."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from rollbox import Client
from tests.bridges.running import bridge, command_of, environment
from tests.support.e2b_speaking import Speaker
from tests.support.stack import Product, free_port

SERVER = (Path(__file__).parents[1] / "product/server_in_sandbox.py").read_text()
PORT = 8000


async def test_a_restart_cuts_streams_and_loses_nothing_else(stack: Product) -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with bridge(stack, listen=listen) as url:
        client = await asyncio.create_subprocess_exec(
            *command_of("e2b-2.63.0", "restart.py", ""),
            env=environment(url, stack.api_key),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None
        assert json.loads(await client.stdout.readline())["pid"] > 0
    async with bridge(stack, listen=listen):
        out, _ = await client.communicate(b"\n")
    told = json.loads(out)["saw"]
    assert told.pop("cut") in {"SandboxUnreachableException", "ReadError", "ConnectError"}
    assert told == {"out": "on\n", "kept": "kept", "killed": True}


async def test_servers_in_a_sandbox_are_reached_by_http_and_websocket(stack: Product, client: Client) -> None:
    async with bridge(stack) as url, aiohttp.ClientSession() as http:
        speaker = Speaker(url, http, key=stack.api_key)
        name = (await speaker.create(timeout=300))["sandboxID"]
        sandbox = await client.connect(name)
        await sandbox.files.write("/tmp/server.py", SERVER)
        process = await sandbox.spawn(["python3", "/tmp/server.py", str(PORT), "8001", "8002"])
        await sandbox.ports.wait(PORT)
        host = {"Host": f"{PORT}-{name}.localhost"}
        async with http.post(f"{url}/a/b?c=d%20e", data=b"x" * 100_000, headers=host) as answer:
            told = await answer.json()
            assert (answer.status, answer.headers["X-Server"]) == (200, "in the sandbox")
        assert (told["method"], told["path"], told["body_bytes"]) == ("POST", "/a/b?c=d%20e", 100_000)
        assert not [name for name in told["headers"] if name.startswith(("x-rollbox", "e2b-", "x-access"))]
        async with http.ws_connect(f"{url}/socket", headers=host) as socket:
            await socket.send_str("words")
            await socket.send_bytes(b"\x00\xff")
            assert [await socket.receive_str(), await socket.receive_bytes()] == ["words", b"\x00\xff"]
        refused = await speaker.within("GET", "/health", **{"E2b-Sandbox-Port": "8003", "X-Access-Token": "rbx_no"})
        assert refused.status in {401, 502}
        await process.kill()
        await process.aclose()
        assert (await speaker.control("DELETE", f"/sandboxes/{name}")).status == 204
        async with http.get(url, headers=host) as answer:
            assert (answer.status, (await answer.json())["code"]) in {(502, 502), (401, 401)}


@pytest.mark.parametrize("path", ["/health", "/files?path=/etc/passwd"])
async def test_a_credential_of_another_sandbox_opens_nothing(stack: Product, path: str) -> None:
    async with bridge(stack) as url, aiohttp.ClientSession() as http:
        speaker = Speaker(url, http, key=stack.api_key)
        first = await speaker.create(timeout=300)
        second = speaker.as_other()
        await second.create(timeout=300)
        answer = await second.within("GET", path, **{"X-Access-Token": first["envdAccessToken"]})
        assert answer.status == 401
        for one in (speaker, second):
            assert (await one.control("DELETE", f"/sandboxes/{one.sandbox['sandboxID']}")).status == 204
