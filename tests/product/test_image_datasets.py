"""Data sets that are images, mounted as volumes of pods: read only from inside, told of where they cannot be had."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from rollbox import Client, Dataset
from rollbox.errors import DatasetUnavailable
from tests.cluster import images
from tests.product.test_mounts import ATTACKS, CALLS, file_calls_are_refused
from tests.support.datasets import CONTENT, Files, written
from tests.support.images import IMAGE, REGISTRY
from tests.support.installed import own_cluster
from tests.support.odd_images import ON_CLUSTER, OddImage, provided

pytestmark = pytest.mark.skipif(
    not (ON_CLUSTER and own_cluster()), reason="of Kubernetes, and whether another cluster has them is not known"
)
LOOK = "cd /data && find . | sort && find . -type f -exec sha256sum {} + | sort && stat -c '%n %a %u %Y' script train"
ARTIFACT = "application/vnd.rollbox.test.papers.v1+json"


@pytest.fixture(scope="module")
def files() -> Iterator[Files]:
    with written() as made:
        yield made


@pytest.fixture
async def pictures(client: Client, files: Files, tmp_path: Path) -> AsyncIterator[str]:
    """The name of a data set that is an image of these files."""
    async with provided(OddImage([_packed(files.folder)]), tmp_path) as image, declared(client, image) as name:
        yield name


@asynccontextmanager
async def declared(client: Client, image: str) -> AsyncIterator[str]:
    """The name of a data set that is this image, while the block runs."""
    name = f"image-{uuid4().hex[:8]}"
    await client.set_dataset(name, image=image)
    try:
        yield name
    finally:
        await client.remove_dataset(name)


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, ".")
    return buffer.getvalue()


async def test_commands_and_files_see_an_image(client: Client, pictures: str) -> None:
    # Twice in one pod: it is mounted once there.
    mounts = {"/data": Dataset(pictures), "/srv/again": Dataset(pictures)}
    async with await client.create(IMAGE, memory="256Mi", mounts=mounts) as sandbox:
        assert await sandbox.files.read("/data/train/one") == CONTENT
        assert (await sandbox.exec("cat /srv/again/train/one", check=True)).stdout.encode() == CONTENT
        assert (await sandbox.exec("/data/script", user="nobody", check=True)).stdout == "ran\n"
        # Links lead into the sandbox only.
        for link in ("/data/outward", "/data/upward"):
            assert (await sandbox.exec(["cat", link], check=True)).stdout.strip() == sandbox.id
        assert (await client.get(sandbox.id)).mounts["/data"] == {"dataset": pictures}


async def test_nothing_that_root_does_changes_an_image(client: Client, pictures: str) -> None:
    mounts = {"/data": Dataset(pictures)}
    async with await client.create(IMAGE, memory="256Mi", mounts=mounts) as beside:
        before = (await beside.exec(LOOK, check=True)).stdout
        async with await client.create(IMAGE, memory="256Mi", mounts=mounts) as sandbox:
            won = [attack for attack in ATTACKS if (await sandbox.exec(attack, timeout=20, cwd="/data")).ok]
            assert won == []
            assert (await sandbox.exec(["python3", "-c", CALLS], check=True)).stdout == "[]\n"
            await file_calls_are_refused(sandbox)
            assert (await sandbox.exec(LOOK, check=True)).stdout == before
            await sandbox.delete(wait=True)
        # The end of one takes nothing from another, and the next one begins with the same.
        assert (await beside.exec(LOOK, check=True)).stdout == before
        async with await client.create(IMAGE, memory="256Mi", mounts=mounts) as again:
            assert (await again.exec(LOOK, check=True)).stdout == before


async def test_an_image_that_is_not_there_is_the_installations_fault(client: Client) -> None:
    async with declared(client, f"{REGISTRY}/no-such-data:1") as name:
        with pytest.raises(DatasetUnavailable, match=f"the data set {name} cannot be mounted on node") as refused:
            await client.create(IMAGE, memory="256Mi", mounts={"/data": Dataset(name)})
        assert "not found" in refused.value.detail
        assert (refused.value.fault, refused.value.mask_sample) == ("platform", True)


async def test_an_artifact_that_is_no_image_is_told_in_the_nodes_words(client: Client, files: Files) -> None:
    name = f"odd/artifact-{uuid4().hex[:8]}"
    layer = _packed(files.folder)
    await asyncio.to_thread(images.push_image, f"rollbox/{name}", "1", b"{}", [layer], config_type=ARTIFACT)
    async with declared(client, f"{REGISTRY}/{name}:1") as dataset:
        with pytest.raises(DatasetUnavailable, match=f"the data set {dataset} cannot be mounted on node") as refused:
            await client.create(IMAGE, memory="256Mi", mounts={"/data": Dataset(dataset)})
        assert "failed to mount image volume" in refused.value.detail
        assert (refused.value.fault, refused.value.mask_sample) == ("platform", True)
