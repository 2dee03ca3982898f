"""The chart's own Redis on a volume: what only the store knows outlives its pod."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rollbox import Client
from rollbox.errors import Conflict
from tests.support.faults import kill, ready
from tests.support.images import IMAGE
from tests.support.installed import (
    BESIDE_ANOTHER,
    ONE_OF_EACH,
    Installed,
    installed,
    kubectl,
    objects,
    own_cluster,
    run,
)
from tests.support.waiting import until

RELEASE = "rollbox-volume"
SIZE = "1Gi"
VALUES = (
    f"redis.persistence.size={SIZE}",
    *ONE_OF_EACH,
    *BESIDE_ANOTHER,
    "redis.persistence.enabled=auto",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the volume lies: Redis runs as a user of its own."""
    made = tmp_path / "volume"
    made.mkdir()
    made.chmod(0o777)
    return made


@contextlib.asynccontextmanager
async def default_class() -> AsyncIterator[None]:
    """A default StorageClass, for the whole cluster: whoever installs a release meanwhile gets a volume too."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": RELEASE, "annotations": default},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    await run("kubectl", "apply", "-f", "-", stdin=json.dumps(document).encode())
    try:
        yield
    finally:
        await kubectl("delete", "storageclass", RELEASE, "--ignore-not-found")


@contextlib.asynccontextmanager
async def volume(folder: Path) -> AsyncIterator[None]:
    """A volume of this class, in a folder of the node, which is this machine."""
    spec = {
        "capacity": {"storage": SIZE},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": RELEASE,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
    }
    document = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": RELEASE}, "spec": spec}
    await run("kubectl", "apply", "-f", "-", stdin=json.dumps(document).encode())
    try:
        yield
    finally:
        await kubectl("delete", "persistentvolume", RELEASE, "--wait=true", "--timeout=60s")


async def claims(namespace: str) -> list[str]:
    """The claims of volumes there."""
    return [one["metadata"]["name"] for one in await objects("persistentvolumeclaims", "-n", namespace)]


# The default class is everybody's: releases that others install meanwhile say that they want none of it.
@pytest.mark.disrupts
@pytest.mark.timeout(500)
async def test_tombstones_and_keys_outlive_the_pod_of_redis_where_there_is_a_default_class(folder: Path) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's node has no folder of this machine")
    async with (
        default_class(),
        volume(folder),
        installed(RELEASE, *VALUES) as stored,
        Client(stored.url, stored.api_key) as client,
    ):
        async with await client.create(IMAGE, memory="128Mi", idempotency_key="once") as ended:
            assert (await ended.exec("true")).ok
        await until(lambda: _ended(client, ended.id))
        before = await client.timeline(ended.id)
        async with await client.create(IMAGE, memory="128Mi") as running:
            (pod,) = await _uids(stored)
            await kill(stored, "redis")
            await until(lambda: _replaced(stored, pod))
            await ready(stored, "redis")
            # A rebuild from the cluster would know nothing of it: its pod has gone.
            assert await client.timeline(ended.id) == before
            assert await _ended(client, ended.id)
            with pytest.raises(Conflict):
                await client.create(IMAGE, memory="256Mi", idempotency_key="once")
            assert (await running.exec("echo still")).stdout == "still\n"
        # An upgrade where the class is gone keeps the volume; one that would take it away changes nothing.
        await kubectl("delete", "storageclass", RELEASE)
        await stored.upgrade("controlplane.drainSeconds=30")
        assert await claims(stored.namespace) == [f"data-{RELEASE}-redis-0"]
        assert await client.timeline(ended.id) == before
        with pytest.raises(RuntimeError, match="set it to auto, which keeps what is there"):
            await stored.upgrade("redis.persistence.enabled=false")


@pytest.mark.disrupts
@pytest.mark.timeout(500)
async def test_a_release_that_has_no_volume_gets_none_by_an_upgrade(stack: Installed) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's classes are not ours to change")
    # As it is by default; the release of a process of its own says that it wants none.
    await stack.upgrade("redis.persistence.enabled=auto")
    (redis,) = await objects("statefulsets", "-n", stack.namespace)
    assert not redis["spec"].get("volumeClaimTemplates")
    async with default_class():
        # Nothing but what all upgrades change: it must not fail on fields that cannot be changed.
        await stack.upgrade()
        (after,) = await objects("statefulsets", "-n", stack.namespace)
        assert after["metadata"]["uid"] == redis["metadata"]["uid"]
        assert not after["spec"].get("volumeClaimTemplates")
    assert not await claims(stack.namespace)


async def _ended(client: Client, sandbox_id: str) -> bool:
    return (await client.get(sandbox_id)).state == "ended"


async def _uids(stored: Installed) -> list[str]:
    return [one["metadata"]["uid"] for one in await stored.component("redis")]


async def _replaced(stored: Installed, pod: str) -> bool:
    uids = await _uids(stored)
    return bool(uids) and pod not in uids
