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
from tests.support.installed import Installed, installed, kubectl, own_cluster, run
from tests.support.waiting import until

RELEASE = "rollbox-volume"
SIZE = "1Gi"
VALUES = (
    *("redis.persistence.enabled=true", f"redis.persistence.size={SIZE}", f"redis.persistence.storageClass={RELEASE}"),
    *("controlplane.replicas=1", "gateway.replicas=1", "preflight.enabled=false"),
    # The class of the release that is there already.
    "runtimeClass.create=false",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the volume lies: Redis runs as a user of its own."""
    made = tmp_path / "volume"
    made.mkdir()
    made.chmod(0o777)
    return made


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


@pytest.mark.timeout(400)
async def test_tombstones_and_keys_outlive_the_pod_of_redis(stack: Installed, folder: Path) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's node has no folder of this machine")
    async with (
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


async def _ended(client: Client, sandbox_id: str) -> bool:
    return (await client.get(sandbox_id)).state == "ended"


async def _uids(stored: Installed) -> list[str]:
    return [one["metadata"]["uid"] for one in await stored.component("redis")]


async def _replaced(stored: Installed, pod: str) -> bool:
    uids = await _uids(stored)
    return bool(uids) and pod not in uids
