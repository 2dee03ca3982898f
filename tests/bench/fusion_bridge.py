"""What SandboxFusion's bridge adds to the SDK: a program of one line in a sandbox of its own that was ready ahead."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import aiohttp

from rollbox import Client
from rollbox_bridges.fusion.shelves import LABELS
from tests.bench.bridge import record_of, took_ms
from tests.bench.progress import doing
from tests.bench.record import Record
from tests.bridges.running import bridge
from tests.support.fusion_speaking import Speaker
from tests.support.images import IMAGE
from tests.support.stack import Stack

RUNS: Final = 20
WARM: Final = 4
PROGRAM: Final = "print(1)"


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: a minute, most of it waits for sandboxes."""
    async with (
        bridge(stack, "--warm", str(WARM), protocol="fusion") as url,
        Client(stack.url, stack.api_key) as client,
        aiohttp.ClientSession() as http,
        await client.create(IMAGE) as sandbox,
    ):
        speaker = Speaker(url, http, key=stack.api_key)

        async def by_bridge() -> None:
            assert json.loads((await speaker.run(code=PROGRAM)).body)["run_result"]["stdout"] == "1\n"

        async def by_sdk() -> None:
            assert (await sandbox.exec(["python3", "-c", PROGRAM])).stdout == "1\n"

        await by_bridge()
        doing("programs, each in a sandbox that is ready, in turns")
        took: dict[str, list[float]] = {"bridge": [], "sdk": []}
        for _ in range(RUNS):
            await _ready(client)
            took["bridge"].append(await took_ms(by_bridge))
            await _ready(client)
            took["sdk"].append(await took_ms(by_sdk))
    return [
        record_of(
            "run_code of print(1) through SandboxFusion's bridge, p50",
            "p50",
            took,
            f"{RUNS} of each, in turns, one at a time, each in a new sandbox that is ready",
            "the SDK's exec of python3 -c in one sandbox, p50",
        )
    ]


async def _ready(client: Client) -> None:
    """Wait until the shelf is full again: a create beside it would be measured too."""
    while sum(one.state == "running" for one in await client.list(LABELS)) != WARM:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.05)
