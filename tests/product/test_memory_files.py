"""Files in `/tmp` are on the disk, those in `/dev/shm` are memory and bounded by it, whatever the runtime mounts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from tests.support.commits import commit, made_where_offered, repository
from tests.support.images import IMAGE
from tests.support.installed import own_cluster
from tests.support.isolation import is_gvisor
from tests.support.odd_images import ON_CLUSTER, PROGRAM, OddImage, archive, folders, linked, program, provided
from tests.support.shared_memory import LOADER, ONE_SEGMENT
from tests.support.waiting import until

MIB = 2**20
# More than the memory of the sandboxes here.
LARGE_BYTES = 400 * MIB


async def test_more_than_the_memory_is_uploaded_to_tmp(sandbox: Sandbox, tmp_path: Path) -> None:
    """And counts as the disk's, where a sandbox has its own."""
    before = await sandbox.usage()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGE_BYTES)
    assert (await sandbox.files.upload(tmp_path / "large", "/tmp/large")).size_bytes == LARGE_BYTES
    during = await sandbox.usage()
    assert during.memory_bytes < 128 * MIB
    assert during.memory_files_bytes == 0
    if ON_CLUSTER:
        assert before.disk_bytes is not None
        assert during.disk_bytes is not None
        assert during.disk_bytes >= before.disk_bytes + LARGE_BYTES
        await sandbox.files.remove("/tmp/large")
        await until(lambda: _freed(sandbox, before.disk_bytes or 0))


async def _freed(sandbox: Sandbox, disk_bytes: int) -> bool:
    used = (await sandbox.usage()).disk_bytes
    return used is not None and used < disk_bytes + LARGE_BYTES // 2


async def test_a_command_writes_more_than_the_memory_to_tmp(sandbox: Sandbox) -> None:
    await sandbox.exec(f"head -c {LARGE_BYTES} /dev/zero > /tmp/large", user="1000", check=True)
    assert (await sandbox.usage()).memory_bytes < 128 * MIB


async def test_tmp_is_a_folder_of_the_root_for_everybody_and_for_every_kind_of_call(shared: Sandbox) -> None:
    told = await shared.exec(
        "stat -c %a /tmp; stat -c %d / /tmp /var/tmp | sort -u | wc -l; grep -c ' /tmp ' /proc/mounts"
    )
    assert told.stdout.split() == ["1777", "1", "0"]
    await shared.files.write("/tmp/of-a-file-call", b"1", mode=0o644)
    await shared.exec("echo 2 > /tmp/of-a-command", user="1000", check=True)
    async with await shared.spawn("cat /tmp/of-a-file-call; echo; cat /tmp/of-a-command", terminal=(80, 24)) as process:
        seen = b"".join([part async for part in process.stdout])
    assert seen.split() == [b"1", b"2"]
    assert {entry.path for entry in await shared.files.list("/tmp")} >= {"/tmp/of-a-file-call", "/tmp/of-a-command"}


@made_where_offered
async def test_an_image_of_a_sandbox_has_what_was_in_tmp(client: Client) -> None:
    async with repository() as name:
        async with await client.create(IMAGE, memory="256Mi") as sandbox:
            await sandbox.exec("echo kept | tee /tmp/one /var/tmp/two; mkdir -m 700 /tmp/inner", check=True)
            await sandbox.files.write("/tmp/inner/three", b"kept\n", owner="1000")
            image = await commit(sandbox, name)
            assert image.skipped == ()
        async with await client.create(image, memory="256Mi") as again:
            seen = await again.exec(
                "cat /tmp/one /var/tmp/two /tmp/inner/three; stat -c %a /tmp; stat -c '%a %u' /tmp/inner"
            )
            assert seen.stdout.splitlines() == ["kept"] * 3 + ["1777", "700 0"]


# What an image has at `/tmp`, and the mode that is seen there.
AT_TMP: dict[str, tuple[Callable[[], OddImage], int]] = {
    "nothing": (lambda: OddImage([program()]), 0o1777),
    # An engine makes both folders, and so does containerd.
    "nothing, and its working directory below": (
        lambda: OddImage([program()], {"WorkingDir": "/tmp/inner"}),
        0o755,
    ),
    "an empty folder": (lambda: OddImage([program(), folders({"tmp": 0o1777})]), 0o1777),
    "a file": (lambda: OddImage([program(), archive({"tmp/.keep": b""}), folders({"tmp": 0o1777})]), 0o1777),
    "a folder for its owner alone": (lambda: OddImage([program(), folders({"tmp": 0o700})]), 0o700),
    "a link": (
        lambda: OddImage([program(), folders({"var": 0o755, "var/tmp": 0o1777}), linked("tmp", "var/tmp")]),
        0o1777,
    ),
}


@pytest.mark.skipif(ON_CLUSTER and not own_cluster(), reason="there is no registry for such images")
@pytest.mark.parametrize("what", AT_TMP)
async def test_whatever_the_image_has_at_tmp_it_is_on_the_disk(client: Client, tmp_path: Path, what: str) -> None:
    image, mode = AT_TMP[what]
    with (tmp_path / "large").open("wb") as file:
        file.truncate(200 * MIB)
    async with provided(image(), tmp_path) as name, await client.create(name, memory="128Mi") as sandbox:
        assert (await sandbox.files.stat("/tmp")).mode == mode
        await sandbox.files.upload(tmp_path / "large", "/tmp/large")
        assert (await sandbox.usage()).memory_bytes < 100 * MIB
        assert (await sandbox.exec([PROGRAM, "--probe"])).exit_code == 0


@pytest.mark.parametrize("memory_mib", [256, 1024])
async def test_shared_memory_is_as_large_as_the_memory(client: Client, memory_mib: int) -> None:
    async with await client.create(IMAGE, memory=f"{memory_mib}Mi") as sandbox:
        told = await sandbox.exec(
            "df -k --output=size,used /dev/shm | tail -n 1; stat -c %a /dev/shm; grep -c ' /dev/shm ' /proc/mounts"
        )
        assert told.stdout.split() == [str(memory_mib << 10), "0", "1777", "1"]
        if memory_mib == 1024:
            await sandbox.exec(["python3", "-c", ONE_SEGMENT], check=True)
            loaded = await sandbox.exec(["python3", "-c", LOADER], check=True)
            assert loaded.stdout.split() == ["48", "0"]


async def test_shared_memory_counts_as_memory(client: Client, sandbox: Sandbox) -> None:
    before = await sandbox.usage()
    await sandbox.exec("head -c 100M /dev/zero > /dev/shm/data", check=True)
    after = await sandbox.usage()
    assert after.memory_bytes >= before.memory_bytes + 95 * MIB
    assert (before.memory_files_bytes, after.memory_files_bytes) == (0, 100 * MIB)
    # More than the limit, under gVisor that of the pod: the kernel's choice on an engine, the end under gVisor.
    ended = await sandbox.exec(["python3", "-c", "x = bytearray(320 << 20)"])
    assert ended.oom_killed
    if await is_gvisor(client):
        return
    assert (await sandbox.exec("stat -c %s /dev/shm/data")).stdout == f"{100 * MIB}\n"
