"""Lazily mounted images whose content is damaged, and a snapshotter that hangs: what sandboxes see, and starts get."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from rollbox import Client, SandboxRecord
from tests.cluster.layout import CONTAINERD_SOCKET, MOUNTS_SOCKET, STATE
from tests.e2e.test_lazy import MOUNTS, metric
from tests.e2e.test_lazy_starts import WITHIN_S, Place, image, open_place, started
from tests.support.installed import objects, own_cluster
from tests.support.lazy_faults import containers, damage, forget, hanging
from tests.support.waiting import until

pytestmark = [pytest.mark.images, pytest.mark.lazily, pytest.mark.timeout(900)]

# Agents are asked every five seconds, and one waits three for a snapshotter that hangs.
TOLD_WITHIN_S = 30.0
# A kubelet that waits for the runtime looks again after minutes at the latest.
TAKEN_BACK_WITHIN_S = 300.0
DAMAGED = 'rollbox_snapshotter_read_failures_total{reason="content"}'
# The source of what nodes know.
AGENTS = (
    "nodeAgent.enabled=true",
    f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
    f"nodeAgent.containerd.root={STATE / 'containerd'}",
    "nodeAgent.resources.requests.cpu=5m",
    f"lazyPulling.folder={MOUNTS_SOCKET.parent}",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not own_cluster():
        pytest.skip("a given cluster's nodes have no lazy pulling that the tests know of")
    with asyncio.Runner() as runner:
        opening = open_place(tmp_path_factory.mktemp("place"), *AGENTS)
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


async def test_a_file_whose_content_is_damaged_is_an_io_error_and_the_next_start_gets_the_plain_copy(
    place: Place,
) -> None:
    async with Client(place.stack.url, place.stack.api_key) as client:
        name = await _offered(client, place)
        async with await started(client, name) as whole:
            sums = (await whole.exec("md5sum /srv/*", check=True)).stdout.splitlines()
        await until(lambda: _no_pod(place), WITHIN_S)
        (registry,) = await place.stack.component("registry")
        await asyncio.to_thread(damage, registry["metadata"]["uid"])
        await asyncio.to_thread(forget)
        before = metric(DAMAGED, MOUNTS)
        async with await started(client, name) as sandbox:
            assert (await client.get(sandbox.id)).image_pulled == "lazy"
            read = await sandbox.exec("md5sum /srv/*")
            # What is damaged is an error and never other content; all else is as it was.
            assert not read.ok
            assert "I/O error" in read.stderr or "Input/output error" in read.stderr
            right = read.stdout.splitlines()
            assert set(right) < set(sums)
            assert len(right) >= len(sums) - 2
            assert metric(DAMAGED, MOUNTS) > before
            assert (await sandbox.exec("true")).ok
            assert "files in it could not be read on node" in (await _whole(client, name)).image_pulled_why


async def test_a_start_that_waits_for_a_snapshotter_that_hangs_goes_on_with_the_plain_copy_in_its_own_time(
    place: Place,
) -> None:
    async with Client(place.stack.url, place.stack.api_key) as client:
        name = await _offered(client, place)
        with hanging("snapshotter"):
            async with await client.create(name, cpu=(0.001, 1), memory=("32Mi", "128Mi"), start_timeout=90) as sandbox:
                record = await client.get(sandbox.id)
                print("from the plain copy:", dict(record.timings_ms))
                assert record.image_pulled == "full"
                assert "it was not ready after" in record.image_pulled_why
                assert (await sandbox.exec("md5sum /srv/*")).ok
            # By now its agent has told that the snapshotter does not answer.
            async with await started(client, image(place)) as later:
                record = await client.get(later.id)
                assert record.image_pulled == "full"
                assert "mount no images now" in record.image_pulled_why
        # What the kubelet had begun is taken back.
        await until(lambda: _nothing_of(sandbox.id), TAKEN_BACK_WITHIN_S)
        await until(lambda: _converts(client, place), WITHIN_S)


async def _offered(client: Client, place: Place) -> str:
    """The name of an image of which the converted copy is offered."""
    name = image(place)
    async with await started(client, name, "lazy") as sandbox:
        assert (await client.get(sandbox.id)).image_pulled == "lazy"
    return name


async def _whole(client: Client, name: str) -> SandboxRecord:
    """Of the first start that gets the plain copy: every one that begins once the node's agent had the time to tell.

    What the starts before take says nothing, so it is no part of that time.
    """
    told_s = time.monotonic() + TOLD_WITHIN_S
    while True:
        told = time.monotonic() > told_s
        async with await started(client, name) as sandbox:
            record = await client.get(sandbox.id)
        if record.image_pulled == "full":
            return record
        assert not told, f"from the converted copy, although its files cannot be read: {dict(record.timings_ms)}"
        await asyncio.sleep(2)


async def _converts(client: Client, place: Place) -> bool:
    """Whether an image that is new gets its converted copy later: its nodes mount images."""
    async with await started(client, image(place)) as sandbox:
        return "made for later starts" in (await client.get(sandbox.id)).image_pulled_why


async def _nothing_of(sandbox_id: str) -> bool:
    await asyncio.sleep(1)
    return not await asyncio.to_thread(containers, sandbox_id)


async def _no_pod(place: Place) -> bool:
    await asyncio.sleep(0.5)
    return not await objects("pods", "-n", place.stack.sandboxes)
