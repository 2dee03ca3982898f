"""Child processes that never outlive this one."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from controlplane.embedded.trouble import TroubleError

KILL_AFTER_S: Final = 10.0
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 5.0
# A child that ran this long was well: the next restart is quick again.
WELL_AFTER_S: Final = 30.0


@asynccontextmanager
async def child(
    command: Sequence[str], environ: Mapping[str, str], folder: Path | None = None, stop_within_s: float = KILL_AFTER_S
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that runs in ``folder`` (None: ours) while the block does: asked to end (SIGTERM), then killed.

    When this process is killed the kernel ends the child too, so that the next start finds the address free.
    """
    # A session of its own: Ctrl-C at the terminal reaches only the supervisor, which ends its children in order.
    # Our own standard output is for whoever started us: what a child leaves behind (an engine's monitors outlive
    # a crash) must not keep that pipe open.
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
    """Runs a child until cancelled, and starts it again with growing pauses whenever it ends.

    Raises:
        TroubleError: it ended before it ``was_ready``, which no restart will change.
    """
    log, loop, pause_s = structlog.get_logger("children"), asyncio.get_running_loop(), FIRST_RETRY_S
    while True:
        began_s = loop.time()
        async with child(command, environ, folder) as process:
            status = await process.wait()
        if not was_ready():
            raise TroubleError(f"{name} ended with {status} before it was ready", "Look at its message above.")
        pause_s = FIRST_RETRY_S if loop.time() - began_s > WELL_AFTER_S else min(2 * pause_s, LAST_RETRY_S)
        log.warning("ended and is started again", child=name, status=status, pause_s=pause_s)
        await asyncio.sleep(pause_s)


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command, set up to get SIGTERM when its parent dies; unchanged where util-linux is missing."""
    # Not preexec_fn: it would fork a process with gRPC's threads in it.
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
