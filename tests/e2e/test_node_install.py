"""The chart on a node that has nothing: its installer brings gVisor and lazy pulling, sandboxes run, all goes again."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from controlplane.cluster.kubernetes.nodes.proof import Proof, tainted
from rollbox import Client, Sandbox
from rollbox.errors import CapacityUnavailable, ImagePullFailed
from rollbox.options import Pull
from tests.cluster.layout import LAZY_IMAGES
from tests.e2e.test_lazy import converted, pushed
from tests.support.bare_cluster import CONFIG, FOLDER, INSTALLER, bare_cluster
from tests.support.full_disk import FullDisk, full_disk
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, Installed, installed, kubectl, objects, own_cluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not own_cluster(), reason="a given cluster's nodes are not the tests' to change"),
]
RELEASE = "rollbox-bare"
LAZY = ("lazyPulling.enabled=true", f"lazyPulling.images[0]={LAZY_IMAGES[0]}")
WITHIN_S = 180.0


async def node() -> Proof | None:
    """What is on record of the node; None as long as it has the taint or no record."""
    await asyncio.sleep(1)
    (found,) = await objects("nodes")
    return None if tainted(found) else Proof.of(found)


async def proven() -> bool:
    found = await node()
    return bool(found and found.proven)


async def refused() -> bool:
    found = await node()
    return bool(found and found.installer == "refused" and "drain" in found.detail)


async def again() -> bool:
    found = await node()
    return bool(found and found.installer == "installed" and found.proven)


async def unproven() -> bool:
    await asyncio.sleep(1)
    (found,) = await objects("nodes")
    return tainted(found)


async def created(client: Client, image: str = IMAGE, pull: Pull = "auto", start_timeout: float = 120) -> Sandbox:
    small = (0.001, 1), ("32Mi", "128Mi")
    return await client.create(image, pull=pull, cpu=small[0], memory=small[1], start_timeout=start_timeout)


def files() -> dict[str, bytes]:
    """Of containerd's settings."""
    folders = (CONFIG.parent / "conf.d", CONFIG.parent / "containerd.d")
    return {str(path): path.read_bytes() for path in (CONFIG, *(one for top in folders for one in top.glob("*")))}


async def release(*values: str) -> tuple[str, ...]:
    """Values of a release beside others, or of the only one."""
    classes = {one["metadata"]["name"] for one in await objects("runtimeclasses")}
    return (*BESIDE_ANOTHER, *ONE_OF_EACH, f"runtimeClass.create={'false' if 'gvisor' in classes else 'true'}", *values)


@pytest.mark.timeout(1500)
async def test_a_node_that_has_nothing_gets_all_of_it_and_gives_it_back(tmp_path: Path) -> None:
    async with full_disk(tmp_path / "disk") as disk, bare_cluster():
        before = files()
        watched = f"nodeAgent.containerd.root={disk.folder}"
        async with installed(RELEASE, *await release(*INSTALLER, watched, *LAZY)) as stack:
            await until(proven, WITHIN_S)
            found = await node()
            assert found is not None
            assert found.programs.keys() >= {"runsc", "containerd-shim-runsc-v1", "rollbox-snapshotter"}
            async with Client(stack.url, stack.api_key) as client:
                await runs(client, tmp_path)
                await is_marked_while_its_disk_is_full(client, disk, pushed(tmp_path, "plain/installed"))
                await is_not_changed_under_sandboxes(stack, client)
            await stack.upgrade("nodeAgent.installer.mode=uninstall")
            await until(gone, WITHIN_S)
            assert files() == before
            (left,) = await objects("nodes")
            assert not tainted(left)


async def runs(client: Client, folder: Path) -> None:
    async with await created(client) as sandbox:
        assert "gvisor" in (await sandbox.exec("cat /proc/version")).stdout.lower()
    image = await converted(pushed(folder, "plain/installed"))
    async with await created(client, image, "lazy") as sandbox:
        assert "gvisor" in (await sandbox.exec("cat /proc/version")).stdout.lower()
        assert (await sandbox.exec("cat /srv/3 | md5sum")).ok
    assert str(FOLDER) in await kubectl("logs", "-n", RELEASE, "ds/rollbox-bare-installer", "--tail=-1")


async def is_marked_while_its_disk_is_full(client: Client, disk: FullDisk, image: str) -> None:
    """New sandboxes fail typed at first, and are kept from the node then; what runs goes on."""
    async with await created(client) as sandbox:
        began_s = time.monotonic()
        async with disk.full():
            with pytest.raises(ImagePullFailed, match="the node has no room for it") as failed:
                await created(client, image)
            print(f"full: {failed.value.code} after {time.monotonic() - began_s:.1f} s: {failed.value.detail}")
            await until(unproven, WITHIN_S)
            print(f"full: marked after {time.monotonic() - began_s:.1f} s")
            with pytest.raises(CapacityUnavailable, match="there is no node for sandboxes now") as turned_away:
                await created(client, start_timeout=10)
            print(f"marked: {turned_away.value.code}: {turned_away.value.detail}")
            assert (await sandbox.exec("true")).ok
        began_s = time.monotonic()
        await until(proven, WITHIN_S)
        print(f"room again: whole after {time.monotonic() - began_s:.1f} s")
    async with await created(client, image) as sandbox:
        assert (await sandbox.exec("true")).ok
    reasons = await objects("events", "-n", "default", "--field-selector", "reason=NodeUnproven")
    assert any("the file system of images is full" in str(one.get("message")) for one in reasons)


async def is_not_changed_under_sandboxes(stack: Installed, client: Client) -> None:
    async with await created(client) as sandbox:
        more = (LAZY[1], "lazyPulling.images[1]=registry.example.com/estargz/")
        await stack.upgrade(*more)
        await until(refused, WITHIN_S)
        assert (await sandbox.exec("true")).ok
    await until(again, WITHIN_S)


async def gone() -> bool:
    await asyncio.sleep(1)
    record = FOLDER / "state/record.json"
    (found,) = await objects("nodes")
    return not record.exists() and Proof.of(found) is None and not json.dumps(found["spec"]).count("unproven")
