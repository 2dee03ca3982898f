"""The product on the real engine of this machine, started once by `rollbox up`; each test gets a client of its own."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from tests.support.containers import engine
from tests.support.stack import IMAGE, Stack, start, stop_process, why_no_engine


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """One `rollbox up` for the whole level; at the end it must stop cleanly and leave no container."""
    reason = why_no_engine()
    if reason is not None:
        pytest.fail(f"the local level cannot run here: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    with asyncio.Runner() as runner:
        up = runner.run(start(folder))
        yield up
        assert runner.run(stop_process(up.process)) == 0, (folder / "up.log").read_text()[-2000:]
        assert runner.run(containers_of_state(folder)) == []
    # The engine's monitors write such a file where they stand; that must not be where `rollbox up` was started.
    assert not Path("oom").exists()
    shutil.rmtree(folder)


async def containers_of_state(folder: Path) -> list[str]:
    """Names of what a stack on this folder left; another stack on this machine may run at the same time."""
    installation = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    label = f"label=rollbox.installation={installation}"
    return (await engine("ps", "--all", "--filter", label, "--format", "{{.Names}}")).split()


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """A client of the stack; a sandbox that a test leaves behind fails the test."""
    async with Client(stack.url, stack.api_key) as made:
        yield made
        # What is ending is in the server's hand: a create that failed is answered before its containers are gone.
        left = [record.id for record in await made.list() if record.state != "ending"]
        await made.delete(*left) if left else None
        assert left == [], "the test left sandboxes behind"


@pytest.fixture
async def sandbox(client: Client) -> AsyncIterator[Sandbox]:
    """A fresh sandbox with 256 MiB."""
    async with await client.create(IMAGE, memory="256Mi") as made:
        yield made
