"""Images that a release's mirror converts: first whole, then lazily, and what a node's account is for."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.options import Pull
from tests.cluster import processes
from tests.cluster.layout import (
    CONTAINERD_SOCKET,
    ETC,
    LAZY_PORT,
    LAZY_REGISTRY,
    LAZY_RELEASE,
    REGISTRY,
    RUN,
    SNAPSHOTTER_SOCKET,
    STATE,
)
from tests.cluster.settings import trusted
from tests.cluster.toolchain import program
from tests.e2e.test_disk_limit import LIMIT, is_ended_by, pushed_with_volumes
from tests.e2e.test_lazy import MOUNTS, counted, pushed
from tests.product.test_image_volumes import FILLED, TEMPORARY
from tests.support.faults import node_part
from tests.support.installed import (
    BESIDE_ANOTHER,
    ONE_OF_EACH,
    Installed,
    installed,
    kubectl,
    node_address,
    objects,
    own_cluster,
)
from tests.support.private_place import images
from tests.support.private_registry import told, upstream
from tests.support.stack import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.images, pytest.mark.lazily, pytest.mark.timeout(900)]

WITHIN_S = 240.0
# With agents an image that a node has fetched whole is not offered, so only where they are needed.
AGENT = (
    "nodeAgent.enabled=true",
    f"nodeAgent.containerd.socket={CONTAINERD_SOCKET}",
    f"nodeAgent.containerd.root={STATE / 'containerd'}",
    f"nodeAgent.runsc.root={RUN / 'runsc/k8s.io'}",
    f"lazyPulling.folder={SNAPSHOTTER_SOCKET.parent}",
)
READ = "cat /srv/0 /srv/3 /srv/7 | md5sum"


@dataclass(frozen=True)
class Place:
    """A release whose mirror converts, and an upstream registry that nodes do not know."""

    stack: Installed
    upstream: str
    folder: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not own_cluster():
        pytest.skip("a given cluster's nodes have no lazy pulling that the tests know of")
    with asyncio.Runner() as runner:
        opening = open_place(tmp_path_factory.mktemp("place"))
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


@asynccontextmanager
async def open_place(tmp_path: Path, *more: str) -> AsyncIterator[Place]:
    """One for all tests of a module: an install takes longer than most of them; with further values of the chart."""
    await knows_the_registry()
    address = await node_address()
    push, other = free_port(address), free_port(address)
    # Of the release beside which this one is, where there is one.
    classes = {one["metadata"]["name"] for one in await objects("runtimeclasses")}
    values = (
        *BESIDE_ANOTHER,
        *ONE_OF_EACH,
        f"runtimeClass.create={'false' if 'gvisor-lazy' in classes else 'true'}",
        "lazyPulling.enabled=true",
        "registry.enabled=true",
        f"registry.addresses[0]={address}",
        f"registry.port={LAZY_PORT}",
        f"registry.pushPort={push}",
        f"registry.collectorPort={free_port(address)}",
        "registry.persistence.enabled=false",
        "registry.persistence.size=10Gi",
        f"sandboxes.images.plainHttpRegistries[0]={address}:{other}",
        *(f"registry{part}.resources.requests.cpu=5m" for part in ("", ".mirror")),
        *more,
    )
    async with installed(LAZY_RELEASE, *values) as stack:
        with (
            trusted(*await told(stack), await account(stack)),
            upstream(tmp_path / "upstream", address, other, account=False),
        ):
            yield Place(stack, f"{address}:{other}", tmp_path)


async def knows_the_registry() -> None:
    """A cluster that another checkout has started may have a snapshotter of that, which knows other registries."""
    own = program("snapshotter", "rollbox-snapshotter")
    for part in ("lazy-mounts", "snapshotter"):
        pid = processes.running(part)
        assert pid
        environment = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_text)
        # What runs lazily ends with the other process, which is the same for both.
        other = part == "snapshotter" and str(await asyncio.to_thread(os.readlink, f"/proc/{pid}/exe")) != own
        if LAZY_REGISTRY not in environment or other:
            await node_part("restart", part)


async def account(stack: Installed) -> str:
    """What the release tells nodes to show its registry."""
    name = f"{stack.release}-registry-nodes"
    secret = json.loads(await kubectl("get", "secret", name, "-n", stack.namespace, "-o", "json"))
    return base64.b64decode(secret["data"]["credentials"]).decode()


def image(place: Place) -> str:
    """The name of an image that no node and no private registry has."""
    return pushed(place.folder, "plain/lazy").replace(REGISTRY, place.upstream)


async def started(client: Client, name: str, pull: Pull = "auto") -> Sandbox:
    """A small sandbox of an image."""
    return await client.create(name, pull=pull, cpu=(0.001, 1), memory=("32Mi", "128Mi"), start_timeout=WITHIN_S)


async def test_the_first_start_is_whole_and_the_next_ones_are_lazy(place: Place) -> None:
    stack, name = place.stack, image(place)
    # Before the first start: what is converted behind it is mounted when it is tried.
    lazy = counted("lazy")
    async with Client(stack.url, stack.api_key) as client:
        async with await started(client, name) as first:
            record = await client.get(first.id)
            assert record.image_pulled == "full"
            assert "made for later starts" in record.image_pulled_why
            content = (await first.exec(READ, check=True)).stdout
            (plain,) = await images(stack, first.id)
            assert plain.endswith(f"/plain/lazy@{record.image_ran}")
            print("whole:", dict(record.timings_ms))
        # It waits until a sandbox has started from what was converted.
        async with await started(client, name, "lazy") as second:
            await _is_lazy(client, stack, second, content)
        assert counted("lazy") >= lazy + 1
        async with await started(client, name) as third:
            await _is_lazy(client, stack, third, content)
        # What has started from it to try it goes too.
        await until(lambda: _no_pod_stays(stack))


async def test_the_disk_limit_holds_in_volumes_of_what_the_mirror_has_converted(place: Place) -> None:
    stack, name = place.stack, pushed_with_volumes().replace(REGISTRY, place.upstream)
    tried: list[tuple[Pull, str, str]] = [
        ("auto", FILLED, "full"),
        ("lazy", FILLED, "lazy"),
        ("auto", TEMPORARY, "lazy"),
    ]
    async with Client(stack.url, stack.api_key) as client:
        for pull, at, pulled in tried:
            async with await client.create(
                name, pull=pull, disk=LIMIT, cpu=(0.001, 1), memory=("32Mi", "256Mi"), start_timeout=WITHIN_S
            ) as sandbox:
                assert sandbox.record.image_pulled == pulled
                assert (await sandbox.exec("cat /data/file")).stdout == "of the image\n"
                await is_ended_by(client, sandbox, f"head -c 600000000 /dev/zero > {at}/large; sleep 600")


async def _no_pod_stays(stack: Installed) -> bool:
    return all("deletionTimestamp" in pod["metadata"] for pod in await objects("pods", "-n", stack.sandboxes))


async def _is_lazy(client: Client, stack: Installed, sandbox: Sandbox, content: str) -> None:
    record = await client.get(sandbox.id)
    (ran,) = await images(stack, sandbox.id)
    assert (record.image_pulled, ran.startswith(f"{LAZY_REGISTRY}/estargz/")) == ("lazy", True)
    assert ran.endswith(record.image_ran)
    pod = json.loads(await kubectl("get", "pod", sandbox.id, "-n", stack.sandboxes, "-o", "json"))
    assert pod["spec"]["runtimeClassName"] == "gvisor-lazy"
    assert (await sandbox.exec(READ, check=True)).stdout == content
    print("lazily:", dict(record.timings_ms))


async def test_a_node_whose_account_is_refused_fetches_whole_and_counts_why(place: Place) -> None:
    stack, name = place.stack, image(place)
    file = ETC / "certs.d" / LAZY_REGISTRY / "credentials"
    right = file.read_text()
    denied = counted("full", "denied")
    async with Client(stack.url, stack.api_key) as client:
        file.write_text("pull:expired")
        try:
            # The pull secret of its pod still gets it.
            async with await started(client, name, "lazy") as sandbox:
                assert (await sandbox.exec(READ)).ok
        finally:
            file.write_text(right)
        assert counted("full", "denied") > denied
        lazy, other = counted("lazy"), image(place)
        async with await started(client, other, "lazy") as sandbox:
            assert (await sandbox.exec(READ)).ok
        assert counted("lazy") > lazy


@dataclass(frozen=True)
class Cost:
    """What a start and its command took from the registry, on a node that had nothing of the image.

    Attributes:
        ran: what was started.
        prefetched_bytes: before the sandbox started, in one piece of each layer.
        requests: while it read.
    """

    ran: str
    prefetched_bytes: int
    requests: int


async def _cost(client: Client, name: str) -> Cost:
    # All that was fetched goes with it, and its counters.
    await node_part("restart", "lazy-mounts")
    async with await started(client, name, "lazy") as sandbox:
        assert (await sandbox.exec(READ)).ok
        ran = (await client.get(sandbox.id)).image_ran
        requests = 'stargz_fs_operation_count{operation_type="on_demand_remote_registry_fetch_count"}'
        return Cost(ran, await _mounted("stargz_fs_layer_prefetch_size_bytes"), await _mounted(requests))


async def _mounted(series: str) -> int:
    """What the process that serves the mounts counts; 0 for what it has not counted yet."""

    def read() -> str:
        with urllib.request.urlopen(MOUNTS, timeout=10) as answer:
            return str(answer.read().decode())

    found = re.search(rf"^{re.escape(series)} (\S+)$", await asyncio.to_thread(read), re.MULTILINE)
    return int(float(found[1])) if found else 0


@pytest.fixture
async def agents(place: Place) -> AsyncIterator[None]:
    """The release has node agents while a test runs."""
    await place.stack.upgrade(*AGENT)
    try:
        yield
    finally:
        await place.stack.upgrade("nodeAgent.enabled=false")


@pytest.mark.usefixtures("agents")
async def test_what_a_recorded_command_opens_is_fetched_in_one_piece_before_the_next_start(place: Place) -> None:
    stack, name = place.stack, image(place)
    async with Client(stack.url, stack.api_key) as client:
        common = await client.convert(name)
        before = await _cost(client, name)
        assert (before.ran, before.prefetched_bytes) == (common.ran, 0)
        done = await client.convert(name, record=f"{READ}; exit 3")
        assert (done.state, done.run_failed, done.more) == ("offered", "it exited with 3", False)
        # The shell and its tools, which are one file, and three of the eight files of a mebibyte.
        assert 4 <= done.files < 8
        after = await _cost(client, name)
        print(f"{done.files} files first: {before} -> {after}")
        assert after.ran == done.ran != common.ran
        assert 3 << 20 < after.prefetched_bytes < 6 << 20
        assert after.requests < before.requests
        # The sandbox of the recording is gone.
        assert not [one for one in await client.list() if one.end is None]
