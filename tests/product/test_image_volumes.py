"""Folders that an image declares as `VOLUME` are parts of the file system: counted, and in images of the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from rollbox import Client, Sandbox, Scratch
from rollbox.errors import DiskFull
from tests.support.commits import commit, made_where_offered, repository
from tests.support.datasets import scratch_volumes
from tests.support.installed import own_cluster
from tests.support.odd_images import ON_CLUSTER, OddImage, archive, folders, linked, provided

MIB = 1 << 20
BUSYBOX = "/bin/busybox"
FILLED, EMPTY, MISSING, NESTED, BEHIND_A_LINK, SPACE, ABOVE_MOUNTS, TEMPORARY = VOLUMES = (
    "/data",
    "/empty",
    "/missing/inner",
    "/data/inner/deep",
    "/link/sub",
    "/white space",
    "/etc",
    "/tmp",
)
SETTINGS: Final[dict[str, Any]] = {
    "Volumes": {one: {} for one in VOLUMES},
    "WorkingDir": "/data/work",
    "Env": ["PATH=/bin"],
}
pytestmark = pytest.mark.skipif(ON_CLUSTER and not own_cluster(), reason="there is no registry for such images")


def image() -> OddImage:
    """One with a shell, and volumes wherever images have them."""
    programs = {"bin/busybox": Path(BUSYBOX).read_bytes()}
    applets = [
        linked(f"bin/{one}", "busybox")
        for one in ("sh", "cat", "stat", "ls", "head", "grep", "sleep", "mkdir", "chown", "readlink", "rm")
    ]
    kinds = {"data": 0o2751, "data/inner": 0o700, "empty": 0o1777, "real": 0o755, "etc": 0o755, "tmp": 0o1777}
    files = {"data/file": b"of the image\n", "etc/own": b"of the image\n"}
    return OddImage([archive(programs), *applets, archive(files), folders(kinds), linked("link", "real")], SETTINGS)


async def one_device(sandbox: Sandbox) -> None:
    """All of them are folders of the root file system, for commands and for files alike."""
    for at in VOLUMES:
        told = await sandbox.exec(["stat", "-c", "%d", "/", at], check=True)
        assert len({*told.stdout.split()}) == 1, at
        await sandbox.files.write(f"{at}/by-a-file-call", b"1")
        assert (await sandbox.exec(["cat", f"{at}/by-a-file-call"])).stdout == "1"


async def test_what_the_image_has_there_is_seen_with_its_modes(client: Client, tmp_path: Path) -> None:
    async with provided(image(), tmp_path) as name, await client.create(name, memory="128Mi") as sandbox:
        await one_device(sandbox)
        told = await sandbox.exec(
            "cat /data/file /etc/own; stat -c '%a %u' /data /data/inner /empty /tmp; readlink /proc/self/cwd"
        )
        assert told.stdout.splitlines() == ["of the image"] * 2 + ["2751 0", "700 0", "1777 0", "1777 0", "/data/work"]
        # What the runtime mounts in such a folder stays.
        mounted = await sandbox.exec("grep -c ' /etc/hosts ' /proc/mounts; grep localhost /etc/hosts | head -n 1")
        assert mounted.stdout.split()[:2] == ["1", "127.0.0.1"]


async def test_a_scratch_in_such_a_folder_or_behind_a_link_is_shared(client: Client, tmp_path: Path) -> None:
    shared = {at: Scratch(at.split("/")[1], size="16Mi") for at in ("/data/cache", "/link/cache")}
    async with (
        scratch_volumes(2),
        provided(image(), tmp_path) as name,
        await client.create(name, memory="128Mi", mounts=shared) as one,
        await client.create(name, memory="128Mi", mounts=shared) as two,
    ):
        for at in shared:
            await one.exec(f"echo 42 > {at}/answer", check=True)
            assert (await two.exec(f"cat {at}/answer", check=True)).stdout == "42\n"
        # The volumes are detached nevertheless.
        await one_device(two)
        assert (await two.exec("cat /data/file")).stdout == "of the image\n"


@made_where_offered
@pytest.mark.long
async def test_what_was_written_there_is_in_images_of_the_sandbox(client: Client, tmp_path: Path) -> None:
    async with provided(image(), tmp_path) as name, repository() as ours:
        async with await client.create(name, memory="128Mi") as sandbox:
            for at in VOLUMES:
                await sandbox.files.write(f"{at}/kept", at.encode(), owner="1000", mode=0o640)
            await sandbox.exec("chown 1000 /data", check=True)
            made = await commit(sandbox, ours)
            assert made.skipped == ()
        async with await client.create(made, memory="128Mi") as again:
            for at in VOLUMES:
                told = await again.exec(f"cat '{at}/kept'; stat -c ' %a %u' '{at}/kept'")
                assert told.stdout == f"{at} 640 1000\n"
            assert (await again.exec("stat -c '%a %u' /data; cat /data/file")).stdout == "2751 1000\nof the image\n"
            await one_device(again)
            # And in those of that one, as further changes.
            await again.exec("rm /data/kept; echo 2 > /data/inner/deep/more", check=True)
            more = await commit(again, ours)
        async with await client.create(more, memory="128Mi") as last:
            assert (await last.exec("ls /data /data/inner/deep")).stdout.split() == [
                "/data:",
                "by-a-file-call",
                "file",
                "inner",
                "work",
                "/data/inner/deep:",
                "by-a-file-call",
                "kept",
                "more",
            ]


@pytest.mark.skipif(not ON_CLUSTER, reason="an engine refuses a disk limit")
@pytest.mark.parametrize("at", [FILLED, EMPTY, MISSING, NESTED, BEHIND_A_LINK, TEMPORARY])
async def test_what_is_written_there_counts_against_the_disk_limit(client: Client, tmp_path: Path, at: str) -> None:
    async with provided(image(), tmp_path) as name, await client.create(name, memory="128Mi", disk="200Mi") as sandbox:
        await is_ended_by_writing(sandbox, at)


@pytest.mark.skipif(not ON_CLUSTER, reason="an engine refuses a disk limit")
@made_where_offered
async def test_what_is_written_there_counts_in_sandboxes_of_an_image_of_a_sandbox(
    client: Client, tmp_path: Path
) -> None:
    async with provided(image(), tmp_path) as name, repository() as ours:
        async with await client.create(name, memory="128Mi") as sandbox:
            # Of the image then: no limit counts it.
            await sandbox.exec("head -c 250000000 /dev/zero > /data/of-the-image", check=True)
            made = await commit(sandbox, ours)
        for at in (FILLED, TEMPORARY, "/bin"):
            async with await client.create(made, memory="128Mi", disk="200Mi") as again:
                assert (await again.exec("stat -c %s /data/of-the-image", check=True)).stdout == "250000000\n"
                assert ((await again.usage()).disk_bytes or 0) < 50 * MIB
                await is_ended_by_writing(again, at)


async def is_ended_by_writing(sandbox: Sandbox, at: str) -> None:
    """What is written in a folder is more than the disk limit of 200 MiB allows, and ends the sandbox."""
    with pytest.raises(DiskFull):
        await sandbox.exec(f"head -c 600000000 /dev/zero > '{at}/large'; sleep 100", timeout=110)


async def test_what_is_written_there_is_told_as_used(client: Client, tmp_path: Path) -> None:
    async with provided(image(), tmp_path) as name, await client.create(name, memory="128Mi") as sandbox:
        before = await sandbox.usage()
        await sandbox.exec("head -c 200000000 /dev/zero > /data/large", check=True)
        after = await sandbox.usage()
        assert after.memory_bytes < 100 * MIB
        if ON_CLUSTER:
            assert None not in (before.disk_bytes, after.disk_bytes)
            assert (after.disk_bytes or 0) >= (before.disk_bytes or 0) + 190 * MIB
