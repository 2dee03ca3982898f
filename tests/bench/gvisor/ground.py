"""The same image under runc and in gVisor, at the same time: two containers of the engine, limited as sandboxes are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.support.containers import engine, engine_command
from tests.support.installed import program

BUILD: Final = Path(__file__).parent / "image" / "build.sh"
# The limits of files and processes too, since by itself the engine may give more than it has.
LIMITS: Final = ("--network=none", "--cpus=1", "--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512")


@contextlib.asynccontextmanager
async def containers(*options: str) -> AsyncIterator[tuple[str, str]]:
    """Names of the two, runc's first.

    Args:
        options: further ones of the engine's `run`.

    Raises:
        RuntimeError: the engine is not Podman, which takes a runtime by its path; or there is no runsc: `make cluster`
            builds it.
    """
    if engine_command() != "podman":
        raise RuntimeError("gVisor is measured with Podman, which takes a runtime by its path")
    image = await _built()
    names = [f"bench-{uuid4().hex[:8]}" for _ in range(2)]
    try:
        for name, runtime in zip(names, ("runc", program("runsc")), strict=True):
            run = ("run", "--detach", "--name", name, *LIMITS, *options, image, "sleep", "infinity")
            await engine("--runtime", runtime, *run)
        yield names[0], names[1]
    finally:
        await engine("rm", "--force", "--time=0", "--ignore", *names)


async def _built() -> str:
    """The image's name in the engine; it is built where it is missing, in some minutes."""
    process = await asyncio.create_subprocess_exec(BUILD, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{BUILD} failed: {process.returncode}")
    return out.decode().strip()
