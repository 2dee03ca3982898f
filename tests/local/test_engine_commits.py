"""What the engine's commits do beyond the product: whose an image is on a warm machine, hostile and odd images."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from controlplane.cluster.engine import EngineCluster
from controlplane.cluster.engine.commit import commits, room
from controlplane.embedded.binaries import required
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from tests.local.test_engine_cluster import GOOD_BOOT, cluster
from tests.support.commits import removed
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.waiting import until

__all__ = ["cluster"]
LIMIT = 1 << 28


@pytest.fixture
async def name() -> AsyncIterator[str]:
    """A repository of an owner, whose images are removed at the end."""
    found = f"test-{uuid4().hex[:12]}"
    yield found
    await until(lambda: removed(found))


async def target(sandbox_id: str, command: str) -> str:
    return await engine("exec", f"rollbox-{sandbox_id}-target", "sh", "-c", command)


async def test_nobody_starts_it_by_another_name(cluster: EngineCluster, name: str) -> None:
    await cluster.start("sb-commit1", SandboxSpec(image=IMAGE), GOOD_BOOT)
    try:
        own = f"{cluster.commits.place}/alice/{name}"
        made = await cluster.commits.commit("sb-commit1", f"{own}:1", LIMIT)
        moved = await cluster.commits.commit("sb-commit1", f"{own}:1", LIMIT)
        assert made.digest != moved.digest
        digits = made.digest.partition(":")[2]
        for known in (f"{own}:1", f"{own}@{made.digest}", f"{own}:1@{made.digest}", f"{own}@{moved.digest}"):
            assert await cluster.digest(known), known
        # Also of the one that has lost its name to the other.
        for other in (
            f"{cluster.commits.place}/bob/{name}@{made.digest}",
            f"python@{made.digest}",
            f"{cluster.commits.place}/bob/{name}@{moved.digest}",
            f"{cluster.commits.place.removeprefix('localhost/')}/alice/{name}:1",
            digits[:12],
        ):
            assert await cluster.digest(other) == "", other
        with pytest.raises(Problem) as refused:
            await cluster.start(
                "sb-commit2", SandboxSpec(image=f"{cluster.commits.place}/bob/{name}@{made.digest}"), GOOD_BOOT
            )
        assert refused.value.code == "image_not_found"
    finally:
        await cluster.stop("sb-commit1")
        await cluster.stop("sb-commit2")


async def test_an_image_says_what_its_own_says(cluster: EngineCluster, name: str) -> None:
    container, base = f"test-{uuid4().hex[:8]}", f"localhost/rollbox/{name}:base"
    changes = (
        "USER 1234:4321",
        "WORKDIR /usr/share",
        "ENV A=b",
        'CMD ["x"]',
        'ENTRYPOINT ["/y"]',
        "LABEL l=m",
        "VOLUME /data",
    )
    await engine("create", "--name", container, IMAGE, "true")
    try:
        await engine("commit", *(f"--change={one}" for one in changes), container, base)
    finally:
        await engine("rm", "--force", container)
    await cluster.start("sb-commit3", SandboxSpec(image=base), GOOD_BOOT)
    try:
        made = await cluster.commits.commit("sb-commit3", f"{cluster.commits.place}/alice/{name}:1", LIMIT)
        assert list(made.skipped) == []
        told = "{{json .Config}}"
        of_both = [await engine("image", "inspect", "--format", told, one) for one in (base, made.digest[7:])]
        first, second = map(json.loads, of_both)
        # What is in such a folder is in the image, and would be copied at each start.
        assert first.pop("Volumes") == {"/data": {}}
        assert first == second
        assert "rollbox" not in of_both[1]
    finally:
        await cluster.stop("sb-commit3")


async def test_an_image_of_one_static_program(cluster: EngineCluster, name: str, tmp_path: Path) -> None:
    archive, bare = tmp_path / "image.tar", f"localhost/rollbox/{name}:bare"
    with tarfile.open(archive, "w") as tar:
        tar.add(required("target").resolve(), arcname="app")
    await engine("import", str(archive), bare)
    await cluster.start("sb-commit4", SandboxSpec(image=bare), GOOD_BOOT)
    try:
        made = await cluster.commits.commit("sb-commit4", f"{cluster.commits.place}/alice/{name}:1", LIMIT)
        # No mount point of the engine; of ours the folder /tmp, which the image lacks.
        assert (made.size_bytes, made.skipped) == (1536, ())
        await cluster.start("sb-commit5", SandboxSpec(image=made.name), GOOD_BOOT)
    finally:
        await cluster.stop("sb-commit4")
        await cluster.stop("sb-commit5")


async def test_devices_and_setuid_programs(cluster: EngineCluster, name: str) -> None:
    await cluster.start("sb-commit6", SandboxSpec(image=IMAGE), GOOD_BOOT)
    try:
        await target("sb-commit6", "mknod /null c 1 3; mknod /disk b 8 0; cp /bin/true /suid; chmod 4755 /suid")
        made = await cluster.commits.commit("sb-commit6", f"{cluster.commits.place}/alice/{name}:1", LIMIT)
        assert list(made.skipped) == ["/disk: a device", "/null: a device"]
    finally:
        await cluster.stop("sb-commit6")


async def test_a_sandbox_that_was_left_standing_still_goes_on(cluster: EngineCluster) -> None:
    await cluster.start("sb-commit7", SandboxSpec(image=IMAGE), GOOD_BOOT)
    try:
        await engine("pause", "rollbox-sb-commit7-sidecar")
        (seen,) = await cluster.list()
        assert seen.death is None
        status = await engine("inspect", "--format", "{{.State.Status}}", "rollbox-sb-commit7-sidecar")
        assert status.strip() == "running"
    finally:
        await cluster.stop("sb-commit7")


async def test_a_sandbox_that_stands_still_can_be_stopped(cluster: EngineCluster) -> None:
    await cluster.start("sb-commit8", SandboxSpec(image=IMAGE), GOOD_BOOT)
    await engine("pause", "rollbox-sb-commit8-sidecar")
    await cluster.stop("sb-commit8")
    assert await cluster.list() == []


async def test_images_are_told_with_their_bytes_and_removed(cluster: EngineCluster, name: str) -> None:
    place = f"{cluster.commits.place}/alice"
    await cluster.start("sb-commit9", SandboxSpec(image=IMAGE), GOOD_BOOT)
    try:
        await target("sb-commit9", "head -c 3000000 /dev/zero > /large")
        base = await cluster.commits.commit("sb-commit9", f"{place}/{name}:base", LIMIT)
        lost = await cluster.commits.commit("sb-commit9", f"{place}/{name}:moved", LIMIT)
        moved = await cluster.commits.commit("sb-commit9", f"{place}/{name}:moved", LIMIT)
        await cluster.start("sb-commit10", SandboxSpec(image=f"{base.name}@{base.digest}"), GOOD_BOOT)
        await target("sb-commit10", "echo > /small")
        above = await cluster.commits.commit("sb-commit10", f"{place}/{name}:above", LIMIT)

        told = {one.digest: one for one in await cluster.commits.kept.below(place) if one.name == f"{place}/{name}"}
        assert {digest: (list(one.tags), one.size_bytes) for digest, one in told.items()} == {
            base.digest: (["base"], base.size_bytes),
            lost.digest: ([], lost.size_bytes),
            moved.digest: (["moved"], moved.size_bytes),
            above.digest: (["above"], above.size_bytes),
        }
        assert base.size_bytes > 3_000_000 > above.size_bytes
        # All three have the same layer, by one of which the last one is made.
        assert set(told[above.digest].built_on) == {base.digest, lost.digest, moved.digest}
        assert all(not one.built_on for digest, one in told.items() if digest != above.digest)
        assert await cluster.commits.kept.below(f"{cluster.commits.place}/bob-{name}") == []

        with pytest.raises(Problem, match="sb-commit10-target") as refused:
            await cluster.commits.kept.remove(told[base.digest])
        assert refused.value.code == "conflict"
        assert await cluster.digest(f"{place}/{name}:base") == base.digest
        for digest in (lost.digest, above.digest):
            await cluster.commits.kept.remove(told[digest])
            assert await cluster.digest(f"{place}/{name}@{digest}") == ""
        assert await cluster.digest(f"{place}/{name}:moved") == moved.digest
    finally:
        await cluster.stop("sb-commit9")
        await cluster.stop("sb-commit10")
    await cluster.commits.kept.remove(told[base.digest])
    await cluster.commits.kept.remove(told[base.digest])
    assert await cluster.digest(f"{place}/{name}:base") == ""


async def test_a_disk_that_is_full_leaves_no_image_and_the_sandbox_as_it_was(
    cluster: EngineCluster, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    await ran("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small))
    monkeypatch.setattr(commits, "LARGE_FILES", str(small))
    await cluster.start("sb-commit11", SandboxSpec(image=IMAGE), GOOD_BOOT)
    try:
        await target("sb-commit11", "head -c 3000000 /dev/urandom > /large")
        for keep_free, words in (
            (room.KEEP_FREE_BYTES, "bytes free, of which"),
            (-(1 << 40), "No space left on device"),
        ):
            # What should stay free refuses it; without that, the disk itself does.
            monkeypatch.setattr(room, "KEEP_FREE_BYTES", keep_free)
            with pytest.raises(Problem, match=words) as full:
                await cluster.commits.commit("sb-commit11", f"{cluster.commits.place}/alice/{name}:1", LIMIT)
            assert full.value.code == "capacity_unavailable"
            assert await cluster.digest(f"{cluster.commits.place}/alice/{name}:1") == ""
            assert list(small.iterdir()) == []
        # It goes on, and is committed where there is room.
        monkeypatch.undo()
        await target("sb-commit11", "true")
        made = await cluster.commits.commit("sb-commit11", f"{cluster.commits.place}/alice/{name}:1", LIMIT)
        assert made.size_bytes > 3_000_000
    finally:
        await cluster.stop("sb-commit11")
        await ran("umount", str(small))


async def ran(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0, command
