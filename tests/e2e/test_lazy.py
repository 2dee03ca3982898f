"""Images that are pulled lazily on the real node: what runs from them, what falls back, and what survives a failure."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, Dataset, Sandbox
from rollbox.errors import SandboxError, Unsupported
from rollbox.options import Pull
from tests.cluster import images, processes
from tests.cluster.layout import REGISTRY
from tests.cluster.smoke import APPLETS
from tests.cluster.toolchain import program
from tests.support.faults import node_part
from tests.support.images import IMAGE
from tests.support.installed import Installed, objects, own_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.images, pytest.mark.lazily]
SNAPSHOTTER, MOUNTS = (f"http://127.0.0.1:{port}/metrics" for port in (9810, 9811))
# A start that waits for a part of the node is tried again by the kubelet, at first after ten seconds.
BACK_WITHIN_S = 60.0


@pytest.fixture(autouse=True)
def _only_here() -> None:
    if not own_cluster():
        pytest.skip("a given cluster's nodes have no lazy pulling that the tests know of")


def metric(series: str, of: str) -> float:
    """What one of the two processes counts."""
    with urllib.request.urlopen(of, timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def counted(how: str, reason: str = "") -> float:
    """Layers that came to the node in this way so far."""
    return metric(f'rollbox_snapshotter_layers_total{{how="{how}",reason="{reason}"}}', SNAPSHOTTER)


def pushed(folder: Path, repository: str) -> str:
    """The name of an image that no node has: a shell, and files that nothing reads by itself."""
    name = f"{REGISTRY}/{repository}:{secrets.token_hex(8)}"
    files = {"bin/busybox": Path("/bin/busybox")}
    for number in range(8):
        data = folder / str(number)
        data.write_bytes(secrets.token_bytes(1 << 20))
        files[f"srv/{number}"] = data
    images.push(name, files, ["/bin/sh"], {f"bin/{one}": "busybox" for one in (*APPLETS, "md5sum")})
    return name


async def converted(plain: str) -> str:
    """The same image in the form that nodes mount lazily, by its digest."""
    target = plain.replace("/plain/", "/estargz/")
    convert = program("snapshotter", "rollbox-convert")
    process = await asyncio.create_subprocess_exec(
        convert, "-insecure", plain, target, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


async def started(client: Client, image: str, pull: Pull, start_timeout: float = 120) -> Sandbox:
    """A small sandbox of this image."""
    small = (0.001, 1), ("32Mi", "128Mi")
    return await client.create(image, pull=pull, cpu=small[0], memory=small[1], start_timeout=start_timeout)


@asynccontextmanager
async def lazily(client: Client, image: str) -> AsyncIterator[Sandbox]:
    """A sandbox of this image, pulled lazily."""
    async with await started(client, image, "lazy") as sandbox:
        yield sandbox


async def test_a_sandbox_runs_in_gvisor_from_an_image_that_is_mounted_lazily(
    stack: Installed, client: Client, tmp_path: Path
) -> None:
    image = await converted(pushed(tmp_path, "plain/lazy"))
    before = counted("lazy")
    async with lazily(client, image) as sandbox:
        assert "gvisor" in (await sandbox.exec("cat /proc/version")).stdout
        assert (await sandbox.exec("cat /srv/3 | md5sum")).ok
        pods = {pod["metadata"]["name"]: pod["spec"] for pod in await objects("pods", "-n", stack.sandboxes)}
        assert pods[sandbox.id]["runtimeClassName"] == "gvisor-lazy"
        assert counted("lazy") == before + 1
    # The node has no layers of this image, and takes it for present.
    async with await started(client, image, "full") as whole:
        assert (await whole.exec("cat /srv/3 | md5sum")).ok


async def test_a_data_set_that_is_an_image_is_mounted_lazily_beside_such_an_image(
    client: Client, tmp_path: Path
) -> None:
    image = await converted(pushed(tmp_path, "plain/lazy"))
    await client.set_dataset("lazy", image=image)
    try:
        small: Any = {"cpu": (0.001, 1), "memory": ("32Mi", "128Mi"), "start_timeout": 120}
        async with await client.create(image, pull="lazy", mounts={"/data": Dataset("lazy")}, **small) as sandbox:
            one, other = (await sandbox.exec("cat /data/srv/3 | md5sum; cat /srv/3 | md5sum", check=True)).stdout.split(
                "\n"
            )[:2]
            assert one == other
            assert not (await sandbox.exec("echo more > /data/srv/3")).ok
    finally:
        await client.remove_dataset("lazy")


async def test_lazy_pulling_that_is_not_to_be_had_is_refused_and_auto_does_without(client: Client) -> None:
    with pytest.raises(Unsupported, match="pull lazy: nodes mount images of"):
        await started(client, IMAGE, "lazy")
    async with await client.create(IMAGE, pull="auto", memory="128Mi") as sandbox:
        assert (await sandbox.exec("true")).ok


async def test_a_layer_of_another_form_is_fetched_whole_and_counted(client: Client, tmp_path: Path) -> None:
    image = pushed(tmp_path, "estargz/not-converted")
    before = counted("full", "plain")
    async with lazily(client, image) as sandbox:
        assert (await sandbox.exec("cat /srv/3 | md5sum")).ok
    assert counted("full", "plain") == before + 1


async def test_what_runs_survives_the_end_of_the_snapshotter_and_starts_wait_for_it(
    client: Client, tmp_path: Path
) -> None:
    image, other = [await converted(pushed(tmp_path, "plain/lazy")) for _ in range(2)]
    async with lazily(client, image) as sandbox:
        await node_part("kill", "snapshotter")
        try:
            assert (await sandbox.exec("cat /srv/1 | md5sum")).ok
            waiting = asyncio.create_task(started(client, other, "lazy"))
            assert not (await asyncio.wait({waiting}, timeout=6))[0]
        finally:
            await node_part("start", "snapshotter")
        async with asyncio.timeout(BACK_WITHIN_S), await waiting as late:
            assert (await late.exec("true")).ok
        assert (await sandbox.exec("cat /srv/2 | md5sum")).ok


async def test_what_runs_survives_a_snapshotter_that_hangs(client: Client, tmp_path: Path) -> None:
    image, other = [await converted(pushed(tmp_path, "plain/lazy")) for _ in range(2)]
    async with lazily(client, image) as sandbox:
        pid = processes.running("snapshotter")
        assert pid
        os.kill(pid, signal.SIGSTOP)
        try:
            assert (await sandbox.exec("cat /srv/1 | md5sum")).ok
            waiting = asyncio.create_task(started(client, other, "lazy"))
            assert not (await asyncio.wait({waiting}, timeout=6))[0]
        finally:
            os.kill(pid, signal.SIGCONT)
        async with asyncio.timeout(BACK_WITHIN_S), await waiting as late:
            assert (await late.exec("true")).ok


async def test_what_runs_ends_typed_with_the_process_that_serves_its_files_and_new_ones_start(
    client: Client, tmp_path: Path
) -> None:
    image = await converted(pushed(tmp_path, "plain/lazy"))
    async with lazily(client, image) as sandbox:
        await node_part("kill", "lazy-mounts")
        await node_part("start", "lazy-mounts")
        await until(lambda: _ended(client, sandbox.id), 30)
        record = await client.get(sandbox.id)
        assert record.end is not None
        assert record.end.mask_sample
        with pytest.raises(SandboxError) as failed:
            await sandbox.exec("true")
        assert failed.value.is_infra
        async with lazily(client, image) as fresh:
            assert (await fresh.exec("cat /srv/1 | md5sum")).ok


# Whoever pulls an image meanwhile gets none.
@pytest.mark.alone
async def test_what_is_fetched_outlives_the_registry_and_what_is_not_is_read_when_it_is_back(
    client: Client, tmp_path: Path
) -> None:
    image, other = [await converted(pushed(tmp_path, "plain/lazy")) for _ in range(2)]
    async with lazily(client, image) as sandbox:
        # What earlier sandboxes have left half fetched stays mounted for some minutes.
        await until(_all_fetched, 300)
        await node_part("stop", "registry")
        try:
            assert (await sandbox.exec("cat /srv/* | md5sum")).ok
            async with lazily(client, image) as second:
                assert (await second.exec("cat /srv/* | md5sum")).ok
            with pytest.raises(SandboxError) as failed:
                await started(client, other, "lazy", 60)
            assert failed.value.is_infra
        finally:
            await node_part("start", "registry")
        async with lazily(client, other) as late:
            assert (await late.exec("cat /srv/* | md5sum")).ok


async def _all_fetched() -> bool:
    """Whether the node has all of what it has mounted."""
    await asyncio.sleep(0.5)
    sizes = (metric("stargz_fs_layer_fetched_size_bytes", MOUNTS), metric("stargz_fs_layer_size_bytes", MOUNTS))
    return sizes[0] == sizes[1] > 0


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.2)
    return (await client.get(sandbox_id)).end is not None
