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
from typing import Any

import pytest

from rollbox import Client, Sandbox
from tests.levels.steps import FIRST_OWNER
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, OWNERS, RELEASE, installed, own_cluster
from tests.support.release import AGENTS, NOTES, VALUES, down, seen_by, up
from tests.support.stack import Product, start, stop_process, why_no_engine

# The label of sandboxes that outlive the test that uses them.
SHARED = "tests-shared"
# Nothing runs in a sandbox after it, and its folders for everybody are empty.
CLEAN = "rm -rf /tmp/* /tmp/.[!.]* /var/tmp/* /dev/shm/*; kill -9 -1"
# Longer than a run takes on a slow machine.
TTL_S = 4 * 3600
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
        installing = installed(f"{RELEASE}-{worker}", *VALUES, *BESIDE_ANOTHER, *(AGENTS if own_cluster() else ()))
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


class Kept:
    """A sandbox that several tests use: made when the first one asks for it.

    Args:
        image: of it.
        options: of its create.

    Attributes:
        id: "" while there is none.
    """

    def __init__(self, stack: Product, image: str = IMAGE, **options: Any) -> None:
        self._stack = stack
        self._image = image
        # Little set aside: it is there all the time, and a node of two cores has room for a dozen that ask for more.
        self._options = {"cpu": (0.02, 2), "memory": "512Mi", **options}
        self._used_by = ""
        self.id = ""

    async def connect(self, client: Client, user: str) -> Sandbox:
        """It, for a module or a test of this name; what those of other names have left in it is gone."""
        if self.id:
            await self.check(client)
        else:
            more: Any = {"labels": {SHARED: "tests"}, "lease": None, "ttl": TTL_S}
            self.id = (await client.create(self._image, **more, **self._options)).id
        sandbox = await client.connect(self.id)
        if self._used_by not in ("", user):
            await sandbox.exec(CLEAN)
        self._used_by = user
        return sandbox

    async def check(self, client: Client) -> None:
        """Fails the test if it has ended; the next one gets another."""
        ended = (await client.get(self.id)).state != "running"
        self.id = "" if ended else self.id
        assert not ended, "a sandbox that others use has ended"

    async def delete(self) -> None:
        """End it, if there is one."""
        async with Client(self._stack.url, self._stack.api_key) as client:
            await client.delete(self.id) if self.id else None
        self.id = ""


def keeping(stack: Product, **options: Any) -> Iterator[Kept]:
    """One, while a fixture stays; see ``Kept``."""
    kept = Kept(stack, **options)
    yield kept
    with asyncio.Runner() as runner:
        runner.run(kept.delete())


@pytest.fixture(scope="session")
def kept(stack: Product) -> Iterator[Kept]:
    """The sandbox behind `shared`; a module with a `stack` of its own has one of its own."""
    yield from keeping(stack)


@pytest.fixture
async def shared(client: Client, kept: Kept, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox for all tests that neither end it nor leave anything in it that others of their module would see."""
    yield await kept.connect(client, request.module.__name__)
    await kept.check(client)


@pytest.fixture
async def sandbox(client: Client) -> AsyncIterator[Sandbox]:
    """A fresh sandbox with 256 MiB."""
    async with await client.create(IMAGE, memory="256Mi") as made:
        yield made
