"""The calls that are measured, in one sandbox or many. Who counts and who compares is the caller's."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rollbox.bench.sample import Wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rollbox.process import Process
    from rollbox.sandbox import Sandbox

# At once -> calls: of commands in different sandboxes, and of the baseline that starts a program for each.
EXECS = {1: 2000, 32: 6400}
BASELINE_EXECS = {1: 30, 32: 96}
# Commands in one sandbox.
CROWD = {16: 1600, 64: 3200, 256: 5120}
KEYSTROKES = 400
SANDBOXES = 8
_ZEROS = ("head", "-c")


def execs(sandboxes: Sequence[Sandbox]) -> Callable[[int], Awaitable[object]]:
    """Return the call of `true` in the sandbox of a lane."""

    async def call(lane: int) -> object:
        result = await sandboxes[lane % len(sandboxes)].exec(["true"])
        return result if result.exit_code == 0 else Wrong(f"true ended with {result.exit_code}")

    return call


def streamed(sandbox: Sandbox, argv: Sequence[str], size: int) -> Callable[[int], Awaitable[object]]:
    """Return the call of a command whose output, so many bytes, is read to its end."""

    async def call(_: int) -> object:
        async with await sandbox.spawn(list(argv)) as process:
            read = sum([len(part) async for part in process.stdout])
        complete = read == size and not process.stdout.gaps
        return None if complete else Wrong(f"{read} bytes of {size} came, with {len(process.stdout.gaps)} gaps")

    return call


def zeros(size: int) -> tuple[str, ...]:
    """Return the command that writes so many bytes as fast as can be."""
    return (*_ZEROS, str(size), "/dev/zero")


@contextlib.asynccontextmanager
async def keys(sandbox: Sandbox) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    """Give the call of one key that a terminal echoes."""
    async with await sandbox.spawn(["cat"], terminal=(80, 24)) as process:

        async def call(_: int) -> object:
            return await _key(process)

        yield call


async def _key(process: Process) -> object:
    # All in one line, of which a terminal takes 4,095: after its end there would be more output than the echo, and a
    # later key would be answered by what is left of it.
    await process.stdin.write("x")
    return await anext(process.stdout, b"") or Wrong("the terminal was closed")


@contextlib.asynccontextmanager
async def copies(
    sandbox: Sandbox, size: int
) -> AsyncIterator[tuple[Callable[[int], Awaitable[object]], Callable[[int], Awaitable[object]]]]:
    """Give the calls of an upload and of a download of one file of so many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        local, back, remote = Path(folder) / "up", Path(folder) / "down", "/tmp/rollbox-bench"  # noqa: S108 - in the sandbox
        local.write_bytes(bytes(range(256)) * (size // 256))

        async def up(_: int) -> object:
            await sandbox.files.upload(local, remote)
            return None

        async def down(_: int) -> object:
            await sandbox.files.download(remote, back)
            return None

        yield up, down
