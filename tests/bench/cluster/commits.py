"""A commit of a sandbox, and sandboxes that start from it against ones that are set up anew each."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rollbox import Client, Sandbox
from rollbox.options import GroupOptions
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.committing import committing
from tests.support.images import ON_CLUSTER
from tests.support.installed import Installed, own_cluster

ROUNDS, GROUP, MIB = 3, 16, 200
# What a set-up does: it copies files, and makes others of them. Of it are 200 MiB, in some thousand files.
SET_UP = f"""
set -eu
library=$(python3 -c 'import os; print(os.path.dirname(os.__file__))')
mkdir -p /prepared
n=0
while [ "$(du -sm /prepared | cut -f 1)" -lt {MIB} ]; do
  n=$((n + 1)) && cp -r "$library" "/prepared/$n"
  python3 -m compileall -q -f "/prepared/$n" > /dev/null || true  # some of its tests are no Python
done
"""
READY = "test -d /prepared/1"
SIZES: GroupOptions = {"memory": ("128Mi", "512Mi"), "cpu": (0.001, 2), "start_timeout": 900.0}


async def measure(_: Installed) -> list[Record]:
    """The records of this scenario, on a release of its own. Cost: ten minutes."""
    if not own_cluster():
        raise RuntimeError("it tells the node of a registry: only on the cluster of `make cluster`")
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
        async with (
            committing("rollbox-commits", Path(folder)) as product,
            Client(product.url, product.api_key) as client,
        ):
            return await _records(client)


async def _records(client: Client) -> list[Record]:
    times: list[float] = []
    async with await client.create(ON_CLUSTER, **SIZES) as sandbox:
        await sandbox.exec(SET_UP, check=True, timeout=900)
        made = await sandbox.commit(checkpoint=True, ttl=3600, timeout=300)
        for number in range(ROUNDS):
            doing(f"commit {number + 1}")
            await client.remove_image(made.id)
            began_s = time.perf_counter()
            made = await sandbox.commit(checkpoint=True, ttl=3600, timeout=300)
            times.append(time.perf_counter() - began_s)
    doing("sandboxes from it")
    from_it: GroupOptions = {**SIZES, "checkpoint": made}
    # The node has it, as from its second sandbox on.
    async with await client.create(**from_it):
        pass
    started = await _group(lambda: client.create(**from_it), READY)
    await client.remove_image(made.id)
    doing("sandboxes that are set up")
    set_up = await _group(lambda: client.create(ON_CLUSTER, **SIZES), SET_UP)
    size = f"{made.size_bytes / 2**20:.0f} MiB in the registry"
    return [
        Record(
            f"commit of {MIB} MiB of changes",
            of_rounds(times)["p50"],
            "s",
            f"{size}, {ROUNDS} rounds",
            distribution=of_rounds(times),
        ),
        Record(
            f"{GROUP} sandboxes from a commit, until the last is ready to work",
            started,
            "s",
            f"{GROUP} creates at once, each until a command has run; against as many that copy and compile {MIB} MiB",
            Baseline("set up each", set_up),
        ),
    ]


async def _group(create: Callable[[], Awaitable[Sandbox]], command: str) -> float:
    """Seconds until a command has run in the last of some sandboxes that are begun at once."""

    async def one() -> Sandbox:
        sandbox = await create()
        await sandbox.exec(command, check=True, timeout=900)
        return sandbox

    began_s = time.perf_counter()
    made = await asyncio.gather(*(one() for _ in range(GROUP)))
    seconds = time.perf_counter() - began_s
    await asyncio.gather(*(sandbox.delete(wait=True) for sandbox in made))
    return seconds
