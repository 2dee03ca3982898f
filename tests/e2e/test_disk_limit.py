"""The disk limit, for every form of an image and wherever is written: no kubelet counts a lazily mounted one."""

from __future__ import annotations

import asyncio
import gzip
import secrets
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import DiskFull
from rollbox.options import Pull
from tests.cluster import images
from tests.cluster.layout import REGISTRY
from tests.e2e.test_lazy import converted, pushed
from tests.product.test_image_volumes import EMPTY, FILLED, MISSING, NESTED, TEMPORARY
from tests.product.test_image_volumes import image as with_volumes
from tests.support.images import IMAGE
from tests.support.installed import own_cluster

pytestmark = [pytest.mark.images, pytest.mark.lazily]

LIMIT = "200Mi"
MIB = 1 << 20
VOLUMES = (FILLED, EMPTY, MISSING, NESTED, TEMPORARY)
# Into one file, and into many of them, which take as much together.
ONE_FILE = "cat /dev/zero | head -c 600000000 > {folder}/large; sleep 600"
MANY_FILES = "for n in $(seq 60); do head -c 10000000 /dev/zero > {folder}/$n; done; sleep 600"


@pytest.fixture(autouse=True)
def _only_here() -> None:
    if not own_cluster():
        pytest.skip("a given cluster's nodes have no lazy pulling that the tests know of")


async def made(client: Client, image: str, pull: Pull) -> Sandbox:
    """A sandbox with this limit."""
    return await client.create(image, pull=pull, disk=LIMIT, cpu=(0.001, 1), memory=("32Mi", "256Mi"))


async def is_ended_by(client: Client, sandbox: Sandbox, command: str) -> None:
    """The command writes more than the limit: it ends the sandbox, the workload's fault, and the record says why."""
    with pytest.raises(DiskFull) as ended:
        async with asyncio.timeout(110):
            await sandbox.exec(command)
    assert not ended.value.is_infra
    assert not ended.value.mask_sample
    record = await client.get(sandbox.id)
    assert record.end is not None
    assert record.end.cause == "disk_full"
    print(record.end.detail)


async def image_of(form: str, folder: Path) -> tuple[str, Pull]:
    """An image with a shell in one of the forms that nodes know, and how it is pulled."""
    match form:
        case "mounted lazily":
            return await converted(pushed(folder, "plain/limit")), "lazy"
        case "chosen by the platform":
            return await converted(pushed(folder, "plain/limit")), "auto"
        case "not converted, where images are mounted lazily":
            return pushed(folder, "estargz/limit"), "lazy"
        case _:
            return await converted(pushed(folder, "plain/limit")), "full"


@pytest.mark.parametrize(
    "form",
    ["mounted lazily", "chosen by the platform", "not converted, where images are mounted lazily", "fetched whole"],
)
async def test_it_holds_for_every_form_of_an_image(client: Client, tmp_path: Path, form: str) -> None:
    image, pull = await image_of(form, tmp_path)
    async with await made(client, image, pull) as sandbox:
        assert (await sandbox.usage()).disk_limit_bytes == 200 * MIB
        # As much as it may, and no more.
        assert (await sandbox.exec("busybox head -c 150000000 /dev/zero > /held && busybox sleep 5")).ok
        await is_ended_by(client, sandbox, "busybox head -c 600000000 /dev/zero > /srv/large; busybox sleep 600")


@pytest.mark.parametrize("folder", ["", "/var/tmp", "/new/folder"])
@pytest.mark.parametrize("command", [ONE_FILE, MANY_FILES], ids=["one file", "many files"])
async def test_it_holds_wherever_something_is_written(client: Client, folder: str, command: str) -> None:
    async with await made(client, IMAGE, "auto") as sandbox:
        await is_ended_by(client, sandbox, f"mkdir -p {folder}/.; {command.format(folder=folder)}")


def pushed_with_volumes() -> str:
    """The name of an image with folders that it declares as `VOLUME`, which no node has."""
    name = f"plain/volumes-{secrets.token_hex(4)}"
    image = with_volumes()
    images.push_image(name, "1", image.settings(), [gzip.compress(layer, 1) for layer in image.layers])
    return f"{REGISTRY}/{name}:1"


@pytest.mark.parametrize(
    ("pull", "at"),
    [*(("lazy", one) for one in VOLUMES), ("auto", FILLED), ("auto", TEMPORARY), ("full", FILLED)],
)
async def test_it_holds_in_volumes_of_an_image_of_every_form(client: Client, pull: Pull, at: str) -> None:
    async with await made(client, await converted(pushed_with_volumes()), pull) as sandbox:
        assert sandbox.record.image_pulled == ("full" if pull == "full" else "lazy")
        assert (await sandbox.exec("cat /data/file")).stdout == "of the image\n"
        await is_ended_by(client, sandbox, f"head -c 600000000 /dev/zero > '{at}/large'; sleep 600")


async def test_what_was_removed_does_not_count(client: Client, tmp_path: Path) -> None:
    image = await converted(pushed(tmp_path, "plain/limit"))
    async with await made(client, image, "lazy") as sandbox:
        for _ in range(4):
            command = "busybox head -c 150000000 /dev/zero > /srv/large && busybox sleep 3 && busybox rm /srv/large"
            assert (await sandbox.exec(command)).ok
        used = (await sandbox.usage()).disk_bytes
        assert used is not None
        assert used < 50 * MIB
