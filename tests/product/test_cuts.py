"""Every connection is cut again and again while commands run: every byte and every exit code is accounted for."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator

import pytest

from rollbox import Client, ExecResult, FileChange, Process, RetryPolicy, Sandbox
from tests.support.cutting import cutting
from tests.support.stack import Product

COMMANDS = 200
AT_ONCE = 20
MEAN_BYTES = 50_000
MEAN_S = 8.0
HOLE_SHARE = 0.05
# Kinds of commands, by their number: a quarter are execs, twenty trickle for 10 to 30 s, and of twenty the program that
# started them dies.
EXECS, TRICKLES, HANDED_OVER = 3, 1, 2
# As often as the network fails: what is told of it is another test's.
RETRIES = RetryPolicy(tries=100, longest_s=0.1, budget_s=60)

# Numbered lines on both streams, in bursts, and what it read at the end: what is lost or doubled shows. All outputs
# together stay below the 8 MiB of ended commands that a sandbox keeps: an answer is there however late it is asked for.
PROGRAM = """
import hashlib, random, sys, time
seed, lines, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chance = random.Random(seed)
for n in range(lines):
    stream = sys.stdout if chance.random() < 0.7 else sys.stderr
    stream.write(f"{seed}:{n}:" + "x" * chance.randrange(200) + "\\n")
    if chance.random() < 0.02 or pause:
        stream.flush()
        time.sleep(pause or 0.01)
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


def of(seed: int) -> tuple[list[str], int, bytes]:
    """The command of a seed, how many lines it writes, and its stdin; an exec's answer has to come in one piece."""
    part = 10 if seed % 4 == EXECS else 1
    lines, stdin = (100 + seed * 7 % 600) // part, random.Random(-seed).randbytes(seed * 997 % 75_000 // part)
    pause = 0.0
    if seed % 10 == TRICKLES:
        lines = 100 + seed
        pause = 0.1
    if seed % 10 == HANDED_OVER:
        # What the first program had not sent of it when it died, nobody could send.
        stdin = b""
    return ["python3", "/tmp/cut.py", str(seed), str(lines), str(pause)], lines, stdin


def account(seed: int, result: ExecResult, stdout: bytes, stderr: bytes) -> None:
    """Every byte and the exit code."""
    _, lines, stdin = of(seed)
    assert (result.end, result.exit_code) == ("exited", seed % 100), seed
    assert (stdout, stderr) == expected(seed, lines, stdin), seed
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (len(stdout), len(stderr)), seed


async def executed(sandbox: Sandbox, seed: int) -> None:
    argv, _, stdin = of(seed)
    result = await sandbox.exec(argv, stdin=stdin, timeout=300)
    account(seed, result, result.stdout_bytes, result.stderr_bytes)


async def spawned(sandbox: Sandbox, seed: int) -> None:
    argv, _, stdin = of(seed)
    process = await sandbox.spawn(argv)
    async with process, asyncio.TaskGroup() as group:
        reading = group.create_task(process.read_both())
        group.create_task(fed(process, stdin))
        result = await process.wait()
    assert process.stdout.gaps == process.stderr.gaps == [], seed
    account(seed, result, *reading.result())


async def fed(process: Process, stdin: bytes) -> None:
    for start in range(0, len(stdin), 10_000):
        await process.stdin.write(stdin[start : start + 10_000])
    await process.stdin.write_eof()


async def handed_over(url: str, api_key: str, sandbox_id: str, seed: int) -> None:
    """The program that started it dies in the middle of the output; another one goes on where it was."""
    argv, _, _ = of(seed)
    async with Client(url, api_key, retries=RETRIES) as client:
        process = await (await client.connect(sandbox_id)).spawn(["sh", "-c", 'exec "$@" < /dev/null', "sh", *argv])
        begun = b""
        while len(begun) < 5_000:
            begun += await process.stdout.next_bytes()
        exec_id, offset = process.exec_id, process.stdout.offset
    assert offset == len(begun)
    async with Client(url, api_key, retries=RETRIES) as client:
        again = await (await client.connect(sandbox_id)).processes.attach(exec_id, stdout_offset=offset)
        async with again:
            stdout, stderr = await again.read_both()
            account(seed, await again.wait(), begun + stdout, stderr)
        assert again.stdout.gaps == again.stderr.gaps == [], seed


@pytest.mark.timeout(600)
@pytest.mark.long
async def test_two_hundred_commands_whose_connections_are_cut(stack: Product, shared: Sandbox) -> None:
    await shared.files.write("/tmp/cut.py", PROGRAM)
    places = asyncio.Semaphore(AT_ONCE)
    async with (
        cutting(stack.url, seed=20_26, mean_bytes=MEAN_BYTES, mean_s=MEAN_S, hole_share=HOLE_SHARE) as network,
        Client(network.url, stack.api_key, retries=RETRIES) as client,
    ):
        sandbox = await client.connect(shared.id)

        async def placed(seed: int) -> None:
            # The long ones all begin at once, and wait for nobody.
            async with contextlib.nullcontext() if seed % 10 == TRICKLES else places:
                if seed % 4 == EXECS:
                    await executed(sandbox, seed)
                elif seed % 10 == HANDED_OVER:
                    await handed_over(network.url, stack.api_key, shared.id, seed)
                else:
                    await spawned(sandbox, seed)

        async with asyncio.TaskGroup() as group:
            for seed in range(COMMANDS):
                group.create_task(placed(seed))
        # The last request of closing must not be what fails the test.
        network.good_from_here()
    ran = (await shared.exec("sort -n /tmp/cut-runs", check=True)).stdout.split()
    assert ran == [str(seed) for seed in range(COMMANDS)], "a command ran twice or not at all"
    assert network.cuts > COMMANDS, "the network was too good"
    assert network.holes > 5, "the network was never silent"


@pytest.mark.timeout(300)
async def test_shells_over_a_network_that_fails(stack: Product, shared: Sandbox) -> None:
    said = "n=$((n+1)); echo $n; printf %02000d $n; echo err$n >&2; (exit $((n % 100)))"
    async with (
        cutting(stack.url, seed=3, mean_bytes=15_000, mean_s=3) as network,
        Client(network.url, stack.api_key, retries=RETRIES) as client,
    ):
        sandbox = await client.connect(shared.id)

        async def session() -> None:
            async with await sandbox.shell(env={"n": "0"}) as shell:
                for n in range(1, 31):
                    result = await shell.run(said)
                    assert (result.stdout, result.stderr) == (f"{n}\n{n:02000d}", f"err{n}\n")
                    assert (result.end, result.exit_code) == ("exited", n)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(session())
        network.good_from_here()
    assert network.cuts > 10


@pytest.mark.timeout(300)
async def test_a_watch_over_a_network_that_fails_misses_nothing_unsaid(stack: Product, shared: Sandbox) -> None:
    await shared.exec("mkdir /tmp/cut-watch", check=True)
    wanted = {f"/tmp/cut-watch/{n}" for n in range(100)}
    known: set[str] = set()
    overflows = 0

    async def look(changes: AsyncIterator[FileChange]) -> None:
        nonlocal overflows
        async for change in changes:
            overflows += change.change == "overflowed"
            if change.change == "watching":
                # What was missed is what a look shows from here on.
                known.update(entry.path for entry in await shared.files.list("/tmp/cut-watch"))
            elif change.path:
                known.add(change.path)
            if known >= wanted:
                return

    async with (
        cutting(stack.url, seed=11, mean_bytes=3_000, mean_s=3) as network,
        Client(network.url, stack.api_key, retries=RETRIES) as client,
    ):
        changes = (await client.connect(shared.id)).files.watch("/tmp/cut-watch")
        async with contextlib.aclosing(changes), asyncio.timeout(120), asyncio.TaskGroup() as group:
            group.create_task(look(changes))
            for path in sorted(wanted):
                await shared.exec(f"echo > {path}", check=True)
        network.good_from_here()
    assert overflows > 2


@pytest.mark.timeout(600)
async def test_files_over_a_network_that_fails(stack: Product, shared: Sandbox) -> None:
    data = random.Random(7).randbytes(3_000_000)
    async with (
        cutting(stack.url, seed=5, mean_bytes=2_000_000) as network,
        Client(network.url, stack.api_key, retries=RETRIES) as client,
    ):
        files = (await client.connect(shared.id)).files
        for n in range(8):
            await files.write(f"/tmp/cut-file-{n}", data)
            assert await files.read(f"/tmp/cut-file-{n}") == data
        network.good_from_here()
    assert network.cuts > 2
