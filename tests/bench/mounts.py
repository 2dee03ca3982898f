"""Reads of a data set, against the same folder that is bound into a plain container of the same runtime."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from rollbox import Client, Dataset
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.containers import engine
from tests.support.datasets import MINI, declared_on_cluster, written
from tests.support.images import ON_CLUSTER, ON_ENGINE
from tests.support.installed import Installed, apply, kubectl
from tests.support.stack import Stack, running

ROUNDS = 5
MIB = 1 << 20
BIG_BYTES, SMALL_FILES, SMALL_BYTES = 1 << 30, 2_000, 4_096
# What each prints: MiB a second of one large file, and small files a second, opened one after the other.
READ = """
import os, time
began = time.perf_counter()
with open("/data/big", "rb", buffering=0) as file:
    buffer, total = bytearray(1 << 20), 0
    while read := file.readinto(buffer):
        total += read
print(total / (1 << 20) / (time.perf_counter() - began))
names = sorted(os.listdir("/data/small"))
began = time.perf_counter()
for name in names:
    with open(f"/data/small/{name}", "rb", buffering=0) as file:
        assert len(file.read()) == 4096
print(len(names) / (time.perf_counter() - began))
"""
COMMAND = ("python3", "-c", READ)


async def measure_on_engine(_: Stack) -> list[Record]:
    """On an engine, with a `rollbox up` of its own. Cost: a minute."""
    with written() as files:
        _fill(files.folder)
        async with running("--dataset", f"{MINI}={files.folder}") as stack, _container(files.folder) as bare:
            return await _measured(stack.url, stack.api_key, ON_ENGINE, bare, "podman's bind mount under runc")


async def measure_on_cluster(stack: Installed) -> list[Record]:
    """On a cluster, by a claim. Cost: two minutes."""
    with written() as files:
        _fill(files.folder)
        async with declared_on_cluster(stack, files), _pod(files.folder) as bare:
            return await _measured(stack.url, stack.api_key, ON_CLUSTER, bare, "a hostPath in a plain gVisor pod")


def _fill(folder: Path) -> None:
    block = os.urandom(MIB)
    with (folder / "big").open("wb") as file:
        for _ in range(BIG_BYTES // MIB):
            file.write(block)
    (folder / "small").mkdir()
    for number in range(SMALL_FILES):
        (folder / "small" / f"{number:05}").write_bytes(block[:SMALL_BYTES])


async def _measured(url: str, key: str, image: str, bare: Callable[[], Awaitable[str]], baseline: str) -> list[Record]:
    mine: list[list[float]] = [[], []]
    plain: list[list[float]] = [[], []]
    async with (
        Client(url, key) as client,
        await client.create(image, cpu=(0.1, 2), memory="1Gi", mounts={"/data": Dataset(MINI)}) as sandbox,
    ):
        for number in range(ROUNDS + 1):
            doing(f"reads, round {number}")
            told = (await sandbox.exec(list(COMMAND), check=True, timeout=300)).stdout, await bare()
            # The first one fills the page cache.
            for rates, text in zip((mine, plain), told, strict=True) if number else ():
                for rate, line in zip(rates, text.split(), strict=True):
                    rate.append(float(line))
    where = f"one sandbox with 2 cores, {ROUNDS} rounds in turn, files in the page cache, everything on this machine"
    names = ("reads of 1 GiB from a data set, in pieces of 1 MiB", "reads of 4 KiB files from a data set")
    return [
        Record(
            name,
            of_rounds(own)["p50"],
            unit,
            where,
            Baseline(baseline, of_rounds(other)["p50"], of_rounds(other)),
            faster_is="larger",
            distribution=of_rounds(own),
        )
        for name, unit, own, other in zip(names, ("MiB/s", "files/s"), mine, plain, strict=True)
    ]


@contextlib.asynccontextmanager
async def _container(folder: Path) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    name = f"bench-{uuid4().hex[:8]}"
    limits = ("--network=none", "--cpus=2", "--memory=1g", "--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512")
    run = ("run", "--detach", "--name", name, *limits, "--volume", f"{folder}:/data:ro", ON_ENGINE, "sleep", "infinity")
    await engine("--runtime", "runc", *run)
    try:
        yield lambda: engine("exec", name, *COMMAND)
    finally:
        await engine("rm", "--force", "--time=0", "--ignore", name)


@contextlib.asynccontextmanager
async def _pod(folder: Path) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    name = f"bench-{uuid4().hex[:8]}"
    container = {
        "name": "a",
        "image": ON_CLUSTER,
        "command": ["sleep", "infinity"],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "runtimeClassName": "gvisor",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "data", "hostPath": {"path": str(folder), "type": "Directory"}}],
        },
    }
    await apply(pod)
    try:
        await kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=120s")
        yield lambda: kubectl("exec", name, "--", *COMMAND)
    finally:
        await kubectl("delete", "pod", name, "--wait=true")
