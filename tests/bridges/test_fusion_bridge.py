"""SandboxFusion's bridge on the product: what a caller that goes away, and the bridge's own end, leave behind."""

from __future__ import annotations

import asyncio

import aiohttp

from rollbox import Client
from tests.bridges.running import bridge
from tests.support.stack import Product

LABELS = {"bridge": "fusion"}
HANGS = {"code": "import time; time.sleep(1000)", "language": "python", "run_timeout": 1000}


async def test_a_caller_that_goes_away_ends_its_program_and_a_bridge_that_ends_leaves_nothing(
    stack: Product, client: Client
) -> None:
    async with (
        bridge(stack, "--warm", "1", protocol="fusion") as url,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {stack.api_key}"}) as http,
    ):
        asked = asyncio.create_task(http.post(f"{url}/run_code", json=HANGS))
        runs = await _with_a_program(client)
        asked.cancel()
        while runs in await _alive(client):
            pass
        async with http.post(f"{url}/run_code", json={"code": "print(1)", "language": "python"}) as answer:
            assert (await answer.json())["run_result"]["stdout"] == "1\n"
    assert await _alive(client) == []


async def _alive(client: Client) -> list[str]:
    """The bridge's sandboxes that have not ended; of those that have, the engine removes what is left."""
    return [one.id for one in await client.list(LABELS) if one.state != "ending"]


async def _with_a_program(client: Client) -> str:
    """Wait until one of the bridge's sandboxes runs a program; its id."""
    while True:
        for name in await _alive(client):
            sandbox = await client.connect(name)
            if any("program.py" in run.argv for run in await sandbox.processes.list()):
                return name
