"""Bytes that go through the whole path while they are made: output, keystrokes, what a port answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from rollbox import Sandbox
from rollbox.bench import calls
from rollbox.bench.arrivals import one_by_one
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution, of_rounds
from tests.bench.surface.ground import Ground
from tests.bench.took import took_ms

# What writes, and how many bytes that are: the fastest there is, and a program that makes its lines.
MAKERS = {
    calls.zeros(1_000_000_000): 1_000_000_000,
    ("seq", "100000000", "139999999"): 400_000_000,
}
PROXY_BYTES = 400_000_000
ROUNDS = 5
MIB = 2**20
# As the sidecar makes the pipe of a command that writes much, and as it was: the baseline of the version before.
PIPE_BYTES, USUAL_PIPE_BYTES = 2**20, 2**16

# As `time` gives it in the sandbox itself: what runs there pays for no way out.
PIPE = """
import os, subprocess, time
def run():
    began = time.perf_counter()
    writer = subprocess.Popen({argv}, stdout=subprocess.PIPE, pipesize={pipe_bytes})
    left = 0
    while data := os.read(writer.stdout.fileno(), 65536): left += len(data)
    assert left == {count}
    return {count} / (time.perf_counter() - began) / 2**20
print(run())
"""
DIRECT = """
import time, urllib.request
def run():
    began = time.perf_counter()
    left = {count}
    with urllib.request.urlopen("http://127.0.0.1:{port}/zeros/{count}") as answer:
        while data := answer.read1(65536): left -= len(data)
    assert left == 0
    return {count} / (time.perf_counter() - began) / 2**20
print(run())
"""
SERVER = Path(__file__).parent.parent.parent / "product" / "server_in_sandbox.py"
PORT, OTHERS = 8000, ("8001", "8002")


async def stdout(sandbox: Sandbox, argv: tuple[str, ...], count: int) -> list[Record]:
    """Output of a command in the SDK, against a pipe in the same sandbox."""
    doing(f"output of {argv[0]}")
    streamed, pipe, usual = await _rounds(
        lambda: _streamed(sandbox, argv, count),
        lambda: _inside(sandbox, PIPE, count, argv, PIPE_BYTES),
        lambda: _inside(sandbox, PIPE, count, argv, USUAL_PIPE_BYTES),
    )
    name = f"output of {argv[0]}, streamed to the SDK"
    where = f"{count:,} bytes of {' '.join(argv)}; client, gateway, sandbox on this machine"
    baseline = "Python reads the same from a pipe in the same sandbox"
    return [
        _against(name, streamed, where, f"{baseline}, of the size that the sidecar's has, 1 MiB", pipe),
        _against(f"{name}, against a pipe of 64 KiB", streamed, where, baseline, usual),
    ]


async def _streamed(sandbox: Sandbox, argv: tuple[str, ...], count: int) -> float:
    (took,) = took_ms(await one_by_one(1, calls.streamed(sandbox, argv, count)))
    return count / took * 1e3 / MIB


async def keystrokes(sandbox: Sandbox) -> Record:
    """From a key to its echo on a terminal."""
    async with calls.keys(sandbox) as key:
        mine = distribution(took_ms(await one_by_one(calls.KEYSTROKES, key)))
    where = f"{calls.KEYSTROKES} keys, one at a time, echoed by the sandbox's own terminal, SDK in Python"
    return Record("keystroke to its echo, p50", mine["p50"], "ms", where, distribution=mine)


async def proxy(ground: Ground, sandbox: Sandbox) -> list[Record]:
    """A large answer of a server in the sandbox, through the gateway, against the same without it."""
    doing("answers of a server")
    await sandbox.files.write("/tmp/server.py", SERVER.read_bytes())
    async with (
        await sandbox.spawn(["python3", "/tmp/server.py", str(PORT), *OTHERS, "0.0.0.0"], output_waits=False),
        aiohttp.ClientSession() as http,
    ):
        await sandbox.ports.wait(PORT)
        port = await sandbox.ports.expose(PORT)
        pod = await ground.address(sandbox.id)
        calls = [
            lambda: _download(http, f"{port.url}zeros/{PROXY_BYTES}", port.headers),
            lambda: _inside(sandbox, DIRECT, PROXY_BYTES),
            # Where the sandbox can be reached past the gateway.
            *([] if pod is None else [lambda: _download(http, f"http://{pod}:{PORT}/zeros/{PROXY_BYTES}", {})]),
        ]
        through, beside, *straight = await _rounds(*calls)
    baselines = [
        *[("the same client straight at the pod's address, from its node", one) for one in straight],
        ("urllib beside the server, over the sandbox's loopback: no network at all", beside),
    ]
    what = "answer of a server in the sandbox, through the gateway"
    where = f"{PROXY_BYTES:,} bytes over HTTP from Python's http.server, read by aiohttp"
    names = (what, f"{what}, by loopback")
    return [_against(name, through, where, *baseline) for name, baseline in zip(names, baselines, strict=False)]


def _against(name: str, mine: list[float], where: str, baseline: str, other: list[float]) -> Record:
    """Medians of rounds in turn. Not the best ones: what two processes get through a pipe depends on where they run,
    up to fourfold, and the best shows only that luck.
    """
    ours, theirs = of_rounds(mine), of_rounds(other)
    held_against = Baseline(baseline, theirs["p50"], theirs)
    conditions = f"{where}; median of {ROUNDS}, in turn"
    return Record(name, ours["p50"], "MiB/s", conditions, held_against, faster_is="larger", distribution=ours)


async def _rounds(*calls: Callable[[], Awaitable[float]]) -> list[list[float]]:
    """What each call comes to, made in turn: a machine that slows down does so for all."""
    rounds = [[await call() for call in calls] for _ in range(ROUNDS)]
    return [list(values) for values in zip(*rounds, strict=True)]


async def _download(http: aiohttp.ClientSession, url: str, headers: object) -> float:
    began = time.perf_counter()
    async with http.get(url, headers=headers) as answer:  # type: ignore[arg-type]
        read = sum([len(part) async for part in answer.content.iter_any()])
    if read != PROXY_BYTES:
        raise RuntimeError(f"{read} bytes of {PROXY_BYTES} came")
    return PROXY_BYTES / (time.perf_counter() - began) / MIB


async def _inside(
    sandbox: Sandbox, program: str, count: int, argv: tuple[str, ...] = (), pipe_bytes: int = PIPE_BYTES
) -> float:
    code = program.format(count=count, port=PORT, argv=list(argv), pipe_bytes=pipe_bytes)
    return float((await sandbox.exec(["python3", "-c", code], check=True)).stdout)
