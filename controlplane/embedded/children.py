"""Child processes that never outlive this process."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from controlplane.embedded.up_error import UpError

KILL_AFTER_S: Final = 10.0
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0
# After a child has run for this long, the restart backoff is reset.
WELL_AFTER_S: Final = 30.0


@asynccontextmanager
async def child(
    command: Sequence[str], environ: Mapping[str, str], folder: Path | None = None, stop_within_s: float = KILL_AFTER_S
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a child during the block; ends it by SIGTERM, then SIGKILL.

    If this process is killed, the kernel ends the child too, so that the next start finds the address free.

    Args:
        command: program and arguments.
        environ: all of its environment.
        folder: its working directory; None: that of this process.
        stop_within_s: seconds from SIGTERM to SIGKILL.

    Yields:
        the child's process.
    """
    # In a session of its own, so that Ctrl-C at the terminal reaches only this process, which ends its children in
    # order. Standard output is not inherited: it may be a pipe to the program that started this process, and must be
    # closed when this process ends, but processes of a child may live on (an engine's monitors outlive a crash).
    process = await asyncio.create_subprocess_exec(
        *bound_to_us(command),
        env=dict(environ),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await _end(process, stop_within_s)


async def keep_running(
    name: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    was_ready: Callable[[], bool],
    folder: Path | None = None,
) -> None:
    """Runs a child until cancelled; restarts it with exponential backoff whenever it exits.

    Args:
        name: of the child, for the log.
        command: program and arguments.
        environ: all of its environment.
        was_ready: whether it has worked at least once.
        folder: its working directory; None: that of this process.

    Raises:
        UpError: it exited before it ``was_ready``; a restart would fail in the same way.
    """
    log, loop, pause_s = structlog.get_logger("children"), asyncio.get_running_loop(), FIRST_RETRY_S
    while True:
        began_s = loop.time()
        async with child(command, environ, folder) as process:
            status = await process.wait()
        if not was_ready():
            raise UpError(f"{name} ended with {status} before it was ready", "Look at its message above.")
        pause_s = FIRST_RETRY_S if loop.time() - began_s > WELL_AFTER_S else min(2 * pause_s, LAST_RETRY_S)
        log.warning("child exited, restarting it", child=name, status=status, pause_s=pause_s)
        await asyncio.sleep(pause_s)


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command, wrapped to get SIGTERM when its parent dies (setpriv); unchanged if util-linux is not installed."""
    # Not preexec_fn, which runs Python after a fork: unsafe in a process with threads, and gRPC has some.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else list(command)


async def _end(process: asyncio.subprocess.Process, stop_within_s: float) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(stop_within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
