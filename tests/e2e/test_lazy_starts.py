"""Images that a release's mirror converts: first whole, then lazily, and what a node's account is for."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.options import Pull
from tests.cluster import processes
from tests.cluster.layout import ETC, LAZY_PORT, LAZY_REGISTRY, LAZY_RELEASE, REGISTRY
from tests.cluster.settings import trusted
from tests.e2e.test_lazy import counted, pushed
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

pytestmark = [pytest.mark.lazily, pytest.mark.timeout(900)]

WITHIN_S = 240.0
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
        opening = _place(tmp_path_factory.mktemp("place"))
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


@asynccontextmanager
async def _place(tmp_path: Path) -> AsyncIterator[Place]:
    """One for all tests here: an install takes longer than most of them."""
    await _knows_the_registry()
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
    )
    async with installed(LAZY_RELEASE, *values) as stack:
        with (
            trusted(*await told(stack), await account(stack)),
            upstream(tmp_path / "upstream", address, other, account=False),
        ):
            yield Place(stack, f"{address}:{other}", tmp_path)


async def _knows_the_registry() -> None:
    """A cluster that another checkout has started may have a snapshotter that was told of other registries."""
    for part in ("lazy-mounts", "snapshotter"):
        pid = processes.running(part)
        assert pid
        environment = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_text)
        if LAZY_REGISTRY not in environment:
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
    async with Client(stack.url, stack.api_key) as client:
        async with await started(client, name) as first:
            record = await client.get(first.id)
            assert record.image_pulled == "full"
            assert "made for later starts" in record.image_pulled_why
            content = (await first.exec(READ, check=True)).stdout
            (plain,) = await images(stack, first.id)
            assert plain.endswith(f"/plain/lazy@{record.image_ran}")
            print("whole:", dict(record.timings_ms))
        lazy = counted("lazy")
        # It waits until a sandbox has started from what was converted.
        async with await started(client, name, "lazy") as second:
            await _is_lazy(client, stack, second, content)
        assert counted("lazy") >= lazy + 1
        async with await started(client, name) as third:
            await _is_lazy(client, stack, third, content)
        # What has started from it to try it is gone.
        pods = await objects("pods", "-n", stack.sandboxes)
        assert not [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


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
