"""The product on the real engine of this machine, started once by `rollbox up`; each test gets a client of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from tests.support.containers import left_containers
from tests.support.stack import IMAGE, Stack, start, stop_process, why_no_engine


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """One `rollbox up` for the whole level; at the end it must stop cleanly and leave no container."""
    reason = why_no_engine()
    if reason is not None:
        pytest.fail(f"the local level cannot run here: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    with asyncio.Runner() as runner:
        of_others = set(runner.run(left_containers()))
        up = runner.run(start(folder))
        yield up
        assert runner.run(stop_process(up.process)) == 0, (folder / "up.log").read_text()[-2000:]
        assert set(runner.run(left_containers())) <= of_others
    shutil.rmtree(folder)


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """A client of the stack; a sandbox that a test leaves behind fails the test."""
    async with Client(stack.url, stack.api_key) as made:
        yield made
        left = [record.id for record in await made.list()]
        await made.delete(*left) if left else None
        assert left == [], "the test left sandboxes behind"


@pytest.fixture
async def sandbox(client: Client) -> AsyncIterator[Sandbox]:
    """A fresh sandbox with 256 MiB."""
    async with await client.create(IMAGE, memory="256Mi") as made:
        yield made
