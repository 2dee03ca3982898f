"""What E2B's bridge adds to the SDK: execs of `true`, alone and many at once, and a large file up and down."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import aiohttp

from rollbox import Client, Sandbox
from rollbox_bridges.connect.framing import enveloped
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.bridges.running import bridge
from tests.support.e2b_speaking import Speaker
from tests.support.stack import Stack

ALONE: Final = 300
AT_ONCE: Final = 200
ROUNDS: Final = 3
FILE_BYTES: Final = 200 * 10**6
CHUNK: Final = bytes(2**18)
TRUE: Final = enveloped(json.dumps({"process": {"cmd": "true"}, "stdin": False}).encode())
STREAM: Final = {"Content-Type": "application/connect+json"}


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        bridge(stack) as url,
        Client(stack.url, stack.api_key) as client,
        aiohttp.ClientSession(connector=connector) as http,
    ):
        speaker = Speaker(url, http, key=stack.api_key)
        sandbox = await client.connect((await speaker.create(timeout=3600))["sandboxID"])
        try:
            return [*await _execs(speaker, sandbox), *await _files(speaker, sandbox)]
        finally:
            await sandbox.delete()


async def _execs(speaker: Speaker, sandbox: Sandbox) -> list[Record]:
    async def by_bridge() -> None:
        answer = await speaker.within("POST", "/process.Process/Start", data=TRUE, **STREAM)
        assert answer.events[-2]["event"]["end"]["status"] == "exit status 0"

    return await exec_records("E2B's bridge", by_bridge, sandbox)


async def exec_records(
    bridge_name: str, by_bridge: Callable[[], Awaitable[None]], sandbox: Sandbox, cmd: Sequence[str] | str = ("true",)
) -> list[Record]:
    """Measure execs of `true` through a bridge against the SDK's, alone and many at once.

    Args:
        bridge_name: for the figures.
        by_bridge: one exec.
        sandbox: in which the SDK's run.
        cmd: what they run.
    """

    async def by_sdk() -> None:
        assert (await sandbox.exec(cmd)).ok

    doing("execs one at a time, in turns")
    alone: dict[str, list[float]] = {"bridge": [], "sdk": []}
    for _ in range(ALONE):
        alone["bridge"].append(await took_ms(by_bridge))
        alone["sdk"].append(await took_ms(by_sdk))
    doing(f"{AT_ONCE} execs at once, in turns")
    crowd: dict[str, list[float]] = {"bridge": [], "sdk": []}
    for _ in range(ROUNDS):
        for name, call in (("bridge", by_bridge), ("sdk", by_sdk)):
            crowd[name] += await asyncio.gather(*(took_ms(call) for _ in range(AT_ONCE)))
    return [
        record_of(
            f"exec of true through {bridge_name}, p50", "p50", alone, f"{ALONE} of each, in turns, one at a time"
        ),
        record_of(
            f"exec of true through {bridge_name}, p99", "p99", crowd, f"{AT_ONCE} at once, {ROUNDS} rounds of each"
        ),
    ]


def record_of(figure: str, share: str, took: dict[str, list[float]], conditions: str, of_sdk: str = "") -> Record:
    """A share of the times through a bridge, beside that of the SDK's."""
    bridge_, sdk = distribution(took["bridge"]), distribution(took["sdk"])
    baseline = Baseline(of_sdk or f"the SDK's exec, {share}", sdk[share], sdk)
    return Record(figure, bridge_[share], "ms", conditions, baseline, distribution=bridge_)


async def _files(speaker: Speaker, sandbox: Sandbox) -> list[Record]:
    plain = {"Content-Type": "application/octet-stream"}

    async def up() -> None:
        answer = await speaker.within("POST", "/files?path=/tmp/large", data=_chunks(), **plain)
        assert answer.status == 200

    async def down() -> None:
        url, headers = f"{speaker.url}/files?path=/tmp/large", speaker.headers()
        async with speaker.http.get(url, headers=headers) as answer:
            assert sum([len(data) async for data in answer.content.iter_any()]) == FILE_BYTES

    async def sdk_up() -> None:
        await sandbox.files.write("/tmp/large", _chunks())

    async def sdk_down() -> None:
        assert sum([len(data) async for data in sandbox.files.open_read("/tmp/large")]) == FILE_BYTES

    records = []
    for way, bridged, direct in (("up", up, sdk_up), ("down", down, sdk_down)):
        doing(f"a file {way}")
        rates = {"bridge": 0.0, "sdk": 0.0}
        for _ in range(ROUNDS):
            for name, call in (("bridge", bridged), ("sdk", direct)):
                rates[name] = max(rates[name], FILE_BYTES / 1000 / await took_ms(call))
        baseline = Baseline("the SDK", rates["sdk"])
        conditions = f"{FILE_BYTES // 10**6} MB, in turns, the best of {ROUNDS}"
        figure = f"a file {way} through E2B's bridge"
        records.append(Record(figure, rates["bridge"], "MB/s", conditions, baseline, faster_is="larger"))
    return records


async def _chunks() -> AsyncIterator[bytes]:
    left = FILE_BYTES
    while left:
        data = CHUNK[:left]
        left -= len(data)
        yield data


async def took_ms(call: Callable[[], Awaitable[None]]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000
