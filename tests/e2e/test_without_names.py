"""A release without names of sandboxes in DNS (`dns.enabled=false`): all calls work by pushed routes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rollbox import Client
from tests.support.faults import kill, ready
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, RELEASE, Installed, installed, objects
from tests.support.release import VALUES

pytestmark = [pytest.mark.disrupts, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stack() -> Iterator[Installed]:
    """A release of its own: that of all other tests has names."""
    with asyncio.Runner() as runner:
        installing = installed(f"{RELEASE}-nameless", *VALUES, *BESIDE_ANOTHER, *ONE_OF_EACH, "dns.enabled=false")
        yield runner.run(installing.__aenter__())
        runner.run(installing.__aexit__(None, None, None))


async def test_all_calls_work_without_names(stack: Installed, client: Client) -> None:
    assert not await stack.component("dns")
    services = {one["metadata"]["name"] for one in await objects("services", "-n", stack.sandboxes)}
    assert not {name for name in services if name.startswith("shard-")}
    async with await client.create(IMAGE, cpu=(0.02, 1), memory="128Mi") as sandbox:
        assert (await sandbox.exec("echo named by routes")).stdout == "named by routes\n"
        await sandbox.files.write("/tmp/note", b"kept")
        assert await sandbox.files.read("/tmp/note") == b"kept"
        # A gateway that has just started knows it by what it is pushed.
        await kill(stack, "gateway", everyone=True)
        await ready(stack, "gateway")
        assert (await sandbox.exec("cat /tmp/note")).stdout == "kept"
    assert not await objects("endpointslices", "-n", stack.sandboxes)
