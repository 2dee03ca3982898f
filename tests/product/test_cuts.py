"""Every connection is cut again and again while commands run: every byte and every exit code is accounted for."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from rollbox import Client, RetryPolicy, Sandbox
from tests.support.cutting import cutting
from tests.support.stack import Product

COMMANDS = 200
AT_ONCE = 20
MEAN_BYTES = 60_000

# Numbered lines on both streams, in bursts, and what it read at the end: what is lost or doubled shows.
PROGRAM = """
import hashlib, random, sys, time
seed, lines = int(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
for n in range(lines):
    stream = sys.stdout if chance.random() < 0.7 else sys.stderr
    stream.write(f"{seed}:{n}:" + "x" * chance.randrange(200) + "\\n")
    if chance.random() < 0.02:
        stream.flush()
        time.sleep(0.01)
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), flush=True)
open("/tmp/cut-runs", "a").write(f"{seed}\\n")
sys.exit(seed % 100)
"""


def expected(seed: int, lines: int, stdin: bytes) -> tuple[bytes, bytes]:
    """What such a command writes."""
    chance = random.Random(seed)
    streams: tuple[list[str], list[str]] = ([], [])
    for n in range(lines):
        stream = streams[0] if chance.random() < 0.7 else streams[1]
        stream.append(f"{seed}:{n}:" + "x" * chance.randrange(200) + "\n")
        chance.random()
    streams[0].append(hashlib.sha256(stdin).hexdigest() + "\n")
    return "".join(streams[0]).encode(), "".join(streams[1]).encode()


async def one(sandbox: Sandbox, seed: int) -> None:
    lines, stdin = 500 + seed * 7 % 3_000, random.Random(-seed).randbytes(seed * 997 % 150_000)
    process = await sandbox.spawn(["python3", "/tmp/cut.py", str(seed), str(lines)])

    async def feed() -> None:
        for start in range(0, len(stdin), 10_000):
            await process.stdin.write(stdin[start : start + 10_000])
        await process.stdin.write_eof()

    async with process, asyncio.TaskGroup() as group:
        reading = group.create_task(process.read_both())
        group.create_task(feed())
        result = await process.wait()
    assert (result.end, result.exit_code) == ("exited", seed % 100), seed
    stdout, stderr = reading.result()
    assert process.stdout.gaps == process.stderr.gaps == [], seed
    assert (stdout, stderr) == expected(seed, lines, stdin), seed
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (len(stdout), len(stderr)), seed


@pytest.mark.timeout(600)
async def test_two_hundred_commands_whose_connections_are_cut(stack: Product, shared: Sandbox) -> None:
    await shared.files.write("/tmp/cut.py", PROGRAM)
    places = asyncio.Semaphore(AT_ONCE)
    # As often as the network fails: what is told of it is another test's.
    retries = RetryPolicy(tries=100, longest_s=0.1, budget_s=60)
    async with (
        cutting(stack.url, seed=20_26, mean_bytes=MEAN_BYTES) as network,
        Client(network.url, stack.api_key, retries=retries) as client,
    ):
        sandbox = await client.connect(shared.id)

        async def placed(seed: int) -> None:
            async with places:
                await one(sandbox, seed)

        async with asyncio.TaskGroup() as group:
            for seed in range(COMMANDS):
                group.create_task(placed(seed))
        # The last request of closing must not be what fails the test.
        network.mean_bytes = 0
    ran = (await shared.exec("sort -n /tmp/cut-runs", check=True)).stdout.split()
    assert ran == [str(seed) for seed in range(COMMANDS)], "a command ran twice or not at all"
    assert network.cuts > COMMANDS, "the network was too good"


@pytest.mark.timeout(600)
async def test_files_over_a_network_that_fails(stack: Product, shared: Sandbox) -> None:
    data = random.Random(7).randbytes(3_000_000)
    retries = RetryPolicy(tries=100, longest_s=0.1, budget_s=60)
    async with (
        cutting(stack.url, seed=5, mean_bytes=2_000_000) as network,
        Client(network.url, stack.api_key, retries=retries) as client,
    ):
        files = (await client.connect(shared.id)).files
        for n in range(8):
            await files.write(f"/tmp/cut-file-{n}", data)
            assert await files.read(f"/tmp/cut-file-{n}") == data
        network.mean_bytes = 0
    assert network.cuts > 2
