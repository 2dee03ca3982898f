"""What a bridge takes for sandboxes that do nothing, each with a stream that stays open.

So many sandboxes fit on no machine that measures: those of a played gateway, which answers as the real one does and
runs nothing. The bridge is the program that people start, and has the same connections as with the real one.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Final

import aiohttp

from rollbox_bridges.connect.framing import Envelopes, enveloped
from tests.bench.memory import resident_mib
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record
from tests.bridges.running import program
from tests.support.e2b_speaking import MOST, Speaker
from tests.support.fake_processes import Script
from tests.support.gateway_fake import FakeGateway, serving
from tests.support.stack import Stack

SANDBOXES: Final = 1000
AT_ONCE: Final = 16
COMMAND: Final = "wait for ever"
START: Final = enveloped(json.dumps({"process": {"cmd": COMMAND}, "stdin": False}).encode())
STREAM: Final = {"Content-Type": "application/connect+json"}
MB_OF_MIB: Final = 2**20 / 10**6


async def measure(_: Stack) -> list[Record]:
    """The records of this scenario. Cost: half a minute."""
    return [await record_of(SANDBOXES)]


async def record_of(sandboxes: int) -> Record:
    """Measure it with so many sandboxes."""
    fake = FakeGateway()
    fake.processes.scripts[COMMAND] = Script(hold=True)
    async with (
        serving(fake),
        program(fake.url, "--image", "python:1") as (url, pid),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        AsyncExitStack() as streams,
    ):
        doing(f"{sandboxes} sandboxes and their streams")
        before = resident_mib(pid)
        turns = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(_streams(Speaker(url, http), streams, turns) for _ in range(sandboxes)))
        # All streams are there, at the gateway too, and none has ended.
        assert [one.result for one in fake.processes.execs.values()] == [None] * sandboxes
        after = resident_mib(pid)
    return Record(
        "memory of E2B's bridge with open streams of idle sandboxes",
        after * MB_OF_MIB,
        "MB",
        f"VmRSS of its process; {sandboxes} sandboxes of a played gateway, a command's stream each, {AT_ONCE} at a "
        "time until all are open",
        Baseline("the same before the first sandbox", before * MB_OF_MIB),
    )


async def _streams(speaker: Speaker, streams: AsyncExitStack, turns: asyncio.Semaphore) -> None:
    """Create a sandbox, start a command that waits, and read its stream as far as its start."""
    async with turns:
        await speaker.create(timeout=3600)
        url, headers = f"{speaker.url}/process.Process/Start", speaker.headers(**STREAM)
        answer = await streams.enter_async_context(speaker.http.post(url, data=START, headers=headers))
        reader = Envelopes(MOST)
        while not (events := [*reader.feed(await answer.content.readany())]):
            pass
        assert b'"start"' in events[0].content, events[0].content
