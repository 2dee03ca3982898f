"""What Prime's bridge adds to the SDK: execs of `true` by the shell, alone and many at once."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import aiohttp

from rollbox import Client
from tests.bench.bridge import exec_records
from tests.bench.record import Record
from tests.bridges.running import bridge
from tests.support.images import IMAGE
from tests.support.prime_speaking import Speaker
from tests.support.stack import Stack

TRUE: Final = json.dumps({"command": "true"}).encode()


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: half a minute."""
    async with (
        bridge(stack, protocol="prime") as url,
        Client(stack.url, stack.api_key) as client,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        speaker = Speaker(url, http, key=stack.api_key)
        made = (await speaker.create(docker_image=IMAGE))["id"]
        # A create may answer before the sandbox is ready.
        while (await speaker.control("GET", f"/sandbox/{made}")).json["status"] != "RUNNING":  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
        sandbox = await client.connect(made)

        async def by_bridge() -> None:
            answer = await speaker.within("POST", "exec", data=TRUE)
            assert answer.json["exit_code"] == 0

        try:
            return await exec_records("Prime's bridge", by_bridge, sandbox, "true")
        finally:
            await sandbox.delete()
