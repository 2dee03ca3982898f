"""A trainer keeps its sandboxes whatever it is busy with, as long as it lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from rollbox import Client
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

TRAINER = """
import asyncio, ctypes, sys, time
from rollbox import Client

async def main(image, how):
    sandbox = await Client().create(image, lease=5, cpu=(0.02, 1), memory=("32Mi", "128Mi"))
    print(sandbox.id, flush=True)
    if how == "blocked":
        time.sleep(600)
    if how == "locked":
        ctypes.PyDLL(None).sleep(600)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.asynccontextmanager
async def trainer(stack: Product, how: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A program with one sandbox that nobody uses, and the sandbox's id."""
    environment = {**os.environ, **stack.environment(), "ROLLBOX_URL": stack.url, "ROLLBOX_API_KEY": stack.api_key}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAINER, IMAGE, how, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


# A sidecar that does not answer is asked again a minute later.
@pytest.mark.timeout(300)
@pytest.mark.long
async def test_a_busy_trainer_keeps_its_sandboxes_and_a_dead_one_does_not(stack: Product, client: Client) -> None:
    """How long the dead one's outlives it is the clock: many times the lease, in which the others say nothing."""
    async with contextlib.AsyncExitStack() as trainers:
        hows = ("blocked", "locked", "stopped", "killed")
        begun = await asyncio.gather(*(trainers.enter_async_context(trainer(stack, how)) for how in hows))
        (_, blocked), (_, locked), (stopped, halted), (killed, orphan) = begun
        stopped.send_signal(signal.SIGSTOP)
        killed.send_signal(signal.SIGKILL)
        await until(lambda: _ended(client, orphan), 150)
        states = [(await client.get(sandbox_id)).state for sandbox_id in (blocked, locked, halted)]
        assert states == ["running"] * 3
    report = await client.delete(blocked, locked, halted)
    assert not report.failed


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).state == "ended"
