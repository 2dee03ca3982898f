"""The same image under runc and in gVisor, at the same time: as two containers of the engine, or as two sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from rollbox import Client, Sandbox
from tests.bench.cluster.__main__ import VALUES
from tests.support.containers import engine, engine_command
from tests.support.images import REGISTRY
from tests.support.installed import OWNERS, RELEASE, Installed, installed, program
from tests.support.release import noted, seen_by
from tests.support.stack import running

BUILD = Path(__file__).parent / "image" / "build.sh"
# A create on a cluster may have to fetch the image, which has more than half a gigabyte.
START_TIMEOUT_S = 600
# As a sandbox has them; the limits of files and processes, since by itself the engine may give more than it has.
LIMITS = ("--network=none", "--cpus=1", "--memory=1g", "--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512")


@contextlib.asynccontextmanager
async def containers(file: Path, path: str) -> AsyncIterator[tuple[str, str]]:
    """Names of two containers of the engine, under runc and in gVisor, with this file at that path.

    Raises:
        RuntimeError: the engine is not Podman, which takes a runtime by its path; or there is no runsc: `make cluster`
            builds it.
    """
    if engine_command() != "podman":
        raise RuntimeError("gVisor is measured with Podman, which takes a runtime by its path")
    image = await _built()
    there = f"--volume={file}:{path}:ro"
    names = [f"bench-{uuid4().hex[:8]}" for _ in range(2)]
    try:
        for name, runtime in zip(names, ("runc", program("runsc")), strict=True):
            await engine(
                "--runtime", runtime, "run", "--detach", "--name", name, there, *LIMITS, image, "sleep", "infinity"
            )
        yield names[0], names[1]
    finally:
        await engine("rm", "--force", "--time=0", "--ignore", *names)


@contextlib.asynccontextmanager
async def sandboxes(**options: Any) -> AsyncIterator[tuple[Sandbox, Sandbox]]:
    """Two sandboxes with these options of `create`: of `rollbox up`, and of the chart in gVisor.

    Raises:
        RuntimeError: what the cluster has made is not in gVisor.
    """
    on_engine, on_cluster = await _built(), await _built(REGISTRY)
    async with (
        running() as stack,
        _chart() as product,
        Client(stack.url, stack.api_key) as local,
        Client(product.url, product.api_key) as chart,
        await local.create(on_engine, **options) as first,
        await chart.create(on_cluster, start_timeout=START_TIMEOUT_S, **options) as second,
    ):
        kernel = (await second.exec("uname -r", check=True)).stdout.strip()
        if "gvisor" not in kernel:
            raise RuntimeError(f"the cluster's sandboxes are not in gVisor: their kernel is {kernel}")
        yield first, second


@contextlib.asynccontextmanager
async def _chart() -> AsyncIterator[Installed]:
    """The release that the tests have installed, else one for this run."""
    if noted() is not None:
        yield await seen_by(OWNERS[0])
        return
    async with installed(RELEASE, *VALUES) as product:
        yield product


async def _built(*registry: str) -> str:
    """The image's name in the engine, or in a registry; it is built where it is missing, in some minutes."""
    process = await asyncio.create_subprocess_exec(BUILD, *registry, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{BUILD} failed: {process.returncode}")
    return out.decode().strip()
