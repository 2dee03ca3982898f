"""The product that a level of tests runs against, started once; each test gets a client of its own.

`ROLLBOX_TEST_PRODUCT` chooses it: `engine` (`rollbox up` on this machine, the default) or `cluster` (the chart, on the
cluster of KUBECONFIG or of `make cluster`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from tests.levels.steps import FIRST_OWNER
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, OWNERS, RELEASE, installed
from tests.support.release import NOTES, VALUES, down, seen_by, up
from tests.support.stack import Product, start, stop_process, why_no_engine

# The label of sandboxes that outlive the test that uses them.
SHARED = "tests-shared"
# pytest-xdist names the processes that share a run gw0, gw1, ...
WORKER = "gw"
FIRST_WORKER = f"{WORKER}0"


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Product]:
    """One product for the whole level; at the end it must stop cleanly and leave nothing."""
    if os.environ.get("ROLLBOX_TEST_PRODUCT") != "cluster":
        yield from _on_engine()
    elif (worker := os.environ.get("PYTEST_XDIST_WORKER")) and _disrupted(request):
        yield from _on_release_of_its_own(worker)
    else:
        yield from _on_cluster(worker or FIRST_WORKER)


def _disrupted(request: pytest.FixtureRequest) -> bool:
    """Whether tests of this run take parts of their release away."""
    return any(item.get_closest_marker("disrupts") for item in request.session.items)


def _on_engine() -> Iterator[Product]:
    reason = why_no_engine()
    if reason is not None:
        pytest.fail(f"this level cannot run here: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    with asyncio.Runner() as runner:
        up = runner.run(start(folder))
        yield up
        assert runner.run(stop_process(up.process)) == 0, (folder / "up.log").read_text()[-2000:]
        assert runner.run(containers_of_state(folder)) == []
    # The engine's monitors write such a file where they stand; that must not be where `rollbox up` was started.
    assert not Path("oom").exists()
    shutil.rmtree(folder)


def _on_cluster(worker: str) -> Iterator[Product]:
    """The release that the levels have installed, else one for this run; each process of a run has its own owner."""
    own = not NOTES.is_file()
    with asyncio.Runner() as runner:
        if own:
            runner.run(up())
        yield runner.run(seen_by(OWNERS[int(os.environ.get(FIRST_OWNER, "0")) + int(worker.removeprefix(WORKER))]))
        if own:
            runner.run(down())


def _on_release_of_its_own(worker: str) -> Iterator[Product]:
    """For tests that stop parts of a release while the tests of other processes run."""
    with asyncio.Runner() as runner:
        installing = installed(f"{RELEASE}-{worker}", *VALUES, *BESIDE_ANOTHER)
        yield runner.run(installing.__aenter__())
        runner.run(installing.__aexit__(None, None, None))


async def containers_of_state(folder: Path) -> list[str]:
    """Names of what a stack on this folder left; another stack on this machine may run at the same time."""
    installation = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    label = f"label=rollbox.installation={installation}"
    return (await engine("ps", "--all", "--filter", label, "--format", "{{.Names}}")).split()


@pytest.fixture
async def client(stack: Product) -> AsyncIterator[Client]:
    """A client of the product; a sandbox that a test leaves behind fails the test."""
    async with Client(stack.url, stack.api_key) as made:
        yield made
        # What is ending is in the server's hand: a create that failed is answered before its containers are gone.
        left = [record.id for record in await made.list() if record.state != "ending" and SHARED not in record.labels]
        await made.delete(*left) if left else None
        assert left == [], "the test left sandboxes behind"


@pytest.fixture(scope="module")
def shared_id(stack: Product) -> Iterator[str]:
    """A sandbox for all tests of a module that ask for `shared`; it must still be there at the end."""

    async def made() -> str:
        async with Client(stack.url, stack.api_key) as client:
            return (await client.create(IMAGE, memory="512Mi", labels={SHARED: "module"}, lease=None)).id

    async def deleted(sandbox_id: str) -> None:
        async with Client(stack.url, stack.api_key) as client:
            assert (await client.get(sandbox_id)).state == "running", "a test has ended the shared sandbox"
            await client.delete(sandbox_id)

    with asyncio.Runner() as runner:
        sandbox_id = runner.run(made())
        yield sandbox_id
        runner.run(deleted(sandbox_id))


@pytest.fixture
async def shared(client: Client, shared_id: str) -> Sandbox:
    """The module's sandbox: for tests that leave nothing behind in it that others would see."""
    return await client.connect(shared_id)


@pytest.fixture
async def sandbox(client: Client) -> AsyncIterator[Sandbox]:
    """A fresh sandbox with 256 MiB."""
    async with await client.create(IMAGE, memory="256Mi") as made:
        yield made
