"""Files in and out: speed against the copy command of the ground, and memory while many go at once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp

from rollbox import Sandbox
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.bench.surface.ground import Ground, memory_mib
from tests.support.wire import token_of

COPY_BYTES = 200_000_000
SMALL_FILES = 580
SMALL_BYTES = 3_000
ROUNDS = 5
# At once, and the size of each: the same bytes in flight or fewer, so only the number of streams differs.
WIDTHS = {8: 200_000_000, 64: 16_000_000}
SAMPLE_S = 0.02
# The client's files: what its disk does is neither's doing, and takes longer than all the rest at times.
IN_MEMORY = "/dev/shm"
MIB = 2**20
BESIDE_SMALL = "one tar of the same, ready in memory, over the same route"
# Seconds of ours, and of the baseline.
Rounds = tuple[list[float], list[float]]


async def copies(ground: Ground, sandbox: Sandbox) -> list[Record]:
    """One large file up and down."""
    doing("a large file up and down")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        local, back = Path(folder) / "up", Path(folder) / "down"
        local.write_bytes(os.urandom(1_000_000) * (COPY_BYTES // 1_000_000))
        remote, theirs = "/var/tmp/copy", "/var/tmp/theirs"
        up = await rounds(
            lambda: sandbox.files.upload(local, remote), lambda: ground.copy_in(local, sandbox.id, theirs)
        )
        down = await rounds(
            lambda: sandbox.files.download(remote, back), lambda: ground.copy_out(sandbox.id, theirs, back)
        )
        await sandbox.files.download(remote, back)
        if back.read_bytes() != local.read_bytes():
            raise RuntimeError("what came back is not what went in")
        await sandbox.exec(["rm", "-f", remote, theirs], check=True)
    how = f"{ROUNDS} rounds, in turn, the client's in memory; ours checks a digest at both ends"
    where = f"{COPY_BYTES:,} bytes of one file, {how}"
    size = f"{COPY_BYTES // 10**6} MB"
    return [
        record
        for way, taken in (("upload", up), ("download", down))
        for record in _both(f"{way} of {size}", taken, "s", where, ground.copying)
    ]


def _both(figure: str, taken: Rounds, unit: str, where: str, baseline: str) -> list[Record]:
    """By the median, and as it was told before, by the best."""
    scale = {"s": 1.0, "ms": 1e3}[unit]
    ours, theirs = ([second * scale for second in seconds] for seconds in taken)
    mine, other = of_rounds(ours), of_rounds(theirs)
    return [
        Record(figure, mine["p50"], unit, where, Baseline(baseline, other["p50"], other), distribution=mine),
        Record(f"{figure}, best of {ROUNDS}", min(ours), unit, where, Baseline(baseline, min(theirs))),
    ]


async def small_files(ground: Ground, sandbox: Sandbox) -> list[Record]:
    """Many small files up as a directory, against one tar of the same that is ready."""
    doing("small files")
    with tempfile.TemporaryDirectory() as folder:
        for n in range(SMALL_FILES):
            path = Path(folder) / f"package-{n % 29}" / f"module-{n}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(SMALL_BYTES))
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            tar.add(folder, arcname=".")
        url = f"{ground.product.url}/v1/sandboxes/{sandbox.id}/archive?path=/var/tmp/tar&parents=true"
        headers = {"Authorization": f"Bearer {await token_of(ground.product, sandbox.id)}"}
        async with aiohttp.ClientSession() as http:

            async def one_tar() -> None:
                async with http.put(url, data=made.getvalue(), headers=headers) as answer:
                    answer.raise_for_status()

            taken = await rounds(lambda: sandbox.files.upload_dir(folder, "/var/tmp/small"), one_tar)
    where = f"{SMALL_BYTES} bytes each in 29 directories, {ROUNDS} rounds, in turn"
    return _both(f"{SMALL_FILES} small files up", taken, "ms", where, BESIDE_SMALL)


async def flat_memory(ground: Ground, sandbox: Sandbox) -> list[Record]:
    """The most memory of each part while many files go up, then down."""
    watched = await ground.watched(sandbox.id)
    records = []
    for at_once, size in WIDTHS.items():
        doing(f"{at_once} files at once")
        before = memory_mib(watched)
        async with peaks(watched) as most, ground.inside(sandbox.id) as inside:
            await asyncio.gather(*(_there_and_back(sandbox, n, size) for n in range(at_once)))
        where = f"{at_once} files of {size // 10**6} MB at once up, then down; looked at every {SAMPLE_S * 1e3:.0f} ms"
        records += [
            Record(
                f"most memory of the {name} in {at_once} transfers",
                at_most,
                "MiB",
                where,
                Baseline("before them", at_first),
            )
            for name, (at_first, at_most) in {
                **{name: (before[name], most[name]) for name in watched},
                **inside,
            }.items()
        ]
    return records


async def _there_and_back(sandbox: Sandbox, number: int, size: int) -> None:
    path = f"/var/tmp/flat-{number}"
    await sandbox.files.write(path, _zeros(size))
    read = sum([len(part) async for part in sandbox.files.open_read(path)])
    if read != size:
        raise RuntimeError(f"{read} bytes of {size} came back")
    await sandbox.files.remove(path)


async def _zeros(size: int) -> AsyncIterator[bytes]:
    for start in range(0, size, 2**16):
        yield bytes(min(2**16, size - start))


@contextlib.asynccontextmanager
async def peaks(watched: dict[str, int]) -> AsyncIterator[dict[str, float]]:
    """The most memory of each process within the block."""
    most = memory_mib(watched)

    async def look() -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            most.update({name: max(most[name], now) for name, now in memory_mib(watched).items()})

    looking = asyncio.create_task(look())
    try:
        yield most
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def rounds(ours: Callable[[], Awaitable[object]], theirs: Callable[[], Awaitable[object]]) -> Rounds:
    """Seconds of some calls of each, made in turn: a machine that slows down does so for both."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, taken in zip((ours, theirs), seconds, strict=True):
            # What the one before has written must not go to the disk in this one's time.
            await asyncio.to_thread(os.sync)
            began = time.perf_counter()
            await call()
            taken.append(time.perf_counter() - began)
    return seconds
