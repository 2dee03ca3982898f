"""What TLS costs a command on a connection that is kept, beside the same gateway's port without it."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from rollbox import Client
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.authority import Authority
from tests.support.images import ON_ENGINE
from tests.support.stack import Stack, free_port, start, stop_process

ROUNDS: Final = 7
EACH: Final = 400
# In a process of its own: what OpenSSL trusts is read when aiohttp is imported.
_CHILD: Final = """
import asyncio, statistics, sys, time
from rollbox import Client

async def main():
    async with Client() as client:
        sandbox = await client.connect(sys.argv[1])
        took_ms = []
        for _ in range(int(sys.argv[2])):
            began = time.perf_counter()
            await sandbox.exec(["true"])
            took_ms.append((time.perf_counter() - began) * 1000)
        print(statistics.median(took_ms))

asyncio.run(main())
"""


async def measure(_: Stack) -> list[Record]:
    """The record of this scenario. Cost: half a minute."""
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as state:
        folder, port = Authority().write(Path(state) / "certificate", "localhost"), free_port()
        files = ("--tls-certificate", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key"))
        up = await start(Path(state), "--tls-listen", f"127.0.0.1:{port}", *files)
        try:
            return [await _record(up, f"https://localhost:{port}", folder / "ca.crt")]
        finally:
            await stop_process(up.process)


async def _record(up: Stack, secured: str, authority: Path) -> Record:
    async with Client(up.url, up.api_key) as client, await client.create(ON_ENGINE) as sandbox:
        took_ms: dict[str, list[float]] = {up.url: [], secured: []}
        for number in range(ROUNDS + 1):
            for url in took_ms:
                doing(f"commands by {url.partition(':')[0]}, round {number}")
                p50_ms = await _p50_ms(url, up.api_key, sandbox.id, authority)
                # The first round warms all parts.
                took_ms[url] += [p50_ms] if number else []
    plain, own = of_rounds(took_ms[up.url]), of_rounds(took_ms[secured])
    what = "the same by the gateway's port without TLS"
    conditions = f"{ROUNDS} rounds in turn of {EACH} execs, one at a time, TLS 1.3, everything on this machine"
    name = "an exec of true over TLS, on a connection that is kept, p50"
    return Record(name, own["p50"], "ms", conditions, Baseline(what, plain["p50"], plain), distribution=own)


async def _p50_ms(url: str, key: str, sandbox_id: str, authority: Path) -> float:
    told = {"ROLLBOX_URL": url, "ROLLBOX_API_KEY": key, "SSL_CERT_FILE": str(authority)}
    command = (sys.executable, "-c", _CHILD, sandbox_id, str(EACH))
    made = await asyncio.create_subprocess_exec(*command, env={**os.environ, **told}, stdout=asyncio.subprocess.PIPE)
    output, _ = await made.communicate()
    assert made.returncode == 0
    return float(output)
