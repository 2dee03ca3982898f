"""A node's images when its disk is full, when it was rebooted, or a registry lies: on a node of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from controlplane.cluster.kubernetes.nodes.preference import version_of
from controlplane.errors import Problem
from tests.support.bare_node import payload, ran
from tests.support.installed import own_cluster
from tests.support.node_with_agent import FILES, NODE, Place, changed, place
from tests.support.waiting import until

pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(not own_cluster(), reason="programs of a node are built for the cluster of this machine"),
    pytest.mark.timeout(420),
]
LAZY = "runsc-lazy"
MIB = 1 << 20
# Says the names and the sums of files, of those that can be read.
READ = "cd /srv; for one in 0 1 2 3 4 5 6 7; do /bin/busybox md5sum $one 2> /dev/null; done"
ALL = [str(number) for number in range(FILES)]
# containerd removes what has arrived of a pull that has failed in the moments after.
ROOM_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return payload(tmp_path_factory.mktemp("payload"))


async def read(there: Place, image: str, snapshotter: str = "overlayfs") -> tuple[list[str], str]:
    """The files that a sandbox of this image reads, and what was said of it where it did not start."""
    began_s = time.monotonic()
    out, err = await there.node.runs(image, snapshotter, "/bin/busybox", "sh", "-c", READ)
    found = {name: total for total, name in (line.split() for line in out.splitlines())}
    print(f"{snapshotter}: reads {[*found]} after {time.monotonic() - began_s:.1f} s; {err.strip()[-300:]}")
    # Whatever goes wrong, what is read is what was written.
    assert all(there.content(image)[int(name)] == total for name, total in found.items())
    return [*found], err


async def pulled(there: Place, image: str, handler: str = "runsc") -> Problem | None:
    began_s = time.monotonic()
    problem = await there.pull(image, handler)
    print(f"pull for {handler}: {problem or 'here'} after {time.monotonic() - began_s:.1f} s")
    return problem


def fill(path: Path) -> None:
    """A file that takes all the room that there is."""
    with contextlib.suppress(OSError), path.open("wb") as file:
        while True:
            file.write(bytes(MIB))
            file.flush()


async def test_a_full_image_disk_is_told_marks_the_node_and_heals_with_room(tmp_path: Path, programs: Path) -> None:
    async with place(tmp_path, programs, {"containerd": "64m"}) as there:
        small, large = await there.pushed(), await there.pushed(8 * MIB)
        assert await pulled(there, small) is None
        assert (await read(there, small))[0] == ALL
        problem = await pulled(there, large)
        assert problem is not None
        assert (problem.code, "the node has no room for it" in problem.detail) == ("image_pull_failed", True), problem

        async def starts() -> bool:
            await asyncio.sleep(2)
            return (await read(there, small))[0] == ALL

        # For a moment nothing starts: what has arrived of the large one is there still.
        assert "full" in " ".join(await there.troubles())
        await until(starts, ROOM_WITHIN_S)
        assert await there.troubles() == []
        filler = tmp_path / "containerd/filler"
        fill(filler)
        (trouble,) = await there.troubles()
        assert "the file system of images is full" in trouble
        filler.unlink()
        assert await there.troubles() == []
        await ran("mount", "-o", "remount,size=512m", str(tmp_path / "containerd"))
        assert await pulled(there, large) is None
        assert (await read(there, large))[0] == ALL


async def test_a_full_disk_of_the_snapshotter_is_an_error_for_who_reads_and_heals_with_room(
    tmp_path: Path, programs: Path
) -> None:
    async with place(tmp_path, programs, {"snapshots": "4m"}) as there:
        image = await there.converted(await there.pushed())
        assert await pulled(there, image, LAZY) is None
        assert len((await read(there, image, "lazy"))[0]) < FILES
        await ran("mount", "-o", "remount,size=256m", str(tmp_path / "snapshots"))
        assert (await read(there, image, "lazy"))[0] == ALL


async def test_a_node_that_was_rebooted_without_its_registry_starts_what_it_has_whole(
    tmp_path: Path, programs: Path
) -> None:
    async with place(tmp_path, programs) as there:
        whole = await there.pushed()
        lazy = await there.converted(await there.pushed())
        for image, handler, snapshotter in ((whole, "runsc", "overlayfs"), (lazy, LAZY, "lazy")):
            assert await pulled(there, image, handler) is None
            assert (await read(there, image, snapshotter))[0] == ALL
        there.away()
        began_s = time.monotonic()
        await there.node.reboot()
        print(f"rebooted after {time.monotonic() - began_s:.1f} s")

        async def whole_again() -> bool:
            await asyncio.sleep(0.2)
            return await there.troubles() == []

        await until(whole_again, 30)
        assert (await read(there, whole))[0] == ALL
        assert (await read(there, lazy, "lazy"))[0] == []
        # An image that the node has never seen.
        problem = await pulled(there, f"{there.registry}/estargz/other:1", LAZY)
        assert problem is not None
        assert (problem.code, "the registry was not reached" in problem.detail) == ("image_pull_failed", True), problem
        there.open()
        assert (await read(there, lazy, "lazy"))[0] == ALL


async def test_content_that_is_not_what_its_table_says_is_not_read(tmp_path: Path, programs: Path) -> None:
    async with place(tmp_path, programs) as there:
        image = await there.converted(await there.pushed())
        layer = await there.layer(image)
        middle = layer.stat().st_size // 2
        with changed(layer, middle, os.urandom(4096)):
            assert await pulled(there, image, LAZY) is None
            seen, _ = await read(there, image, "lazy")
            # At most two files have a part of what is wrong.
            assert FILES - 2 <= len(seen) < FILES
        # What was fetched stays: the node reads it again once its snapshotter has started anew.
        assert (await read(there, image, "lazy"))[0] == seen
        there.node.end("mounts")

        async def heals() -> bool:
            await asyncio.sleep(0.5)
            return (await read(there, image, "lazy"))[0] == ALL

        await until(heals, 60)


async def test_a_table_that_is_not_what_the_manifest_says_is_no_image(tmp_path: Path, programs: Path) -> None:
    async with place(tmp_path, programs) as there:
        image = await there.converted(await there.pushed())
        layer = await there.layer(image)
        # Before the footer of 51 bytes.
        with changed(layer, layer.stat().st_size - 251, os.urandom(64)):
            problem = await pulled(there, image, LAZY)
            assert problem is not None
            assert (problem.code, "digest" in problem.detail) == ("image_pull_failed", True), problem
        assert await pulled(there, image, LAZY) is None
        assert (await read(there, image, "lazy"))[0] == ALL


async def test_what_came_and_went_is_told_by_itself(tmp_path: Path, programs: Path) -> None:
    async with place(tmp_path, programs) as there:
        first, second = await there.pushed(MIB // 8), await there.pushed(MIB // 8)
        assert await pulled(there, first) is None
        told = await there.agents.images_since(NODE, "")
        assert (told.changes, told.unchanged) == (False, False)
        has = {one.mark: one for one in told.images}
        assert (version_of(has), any(first in one.digests for one in has.values())) == (told.version, True)
        assert (await there.agents.images_since(NODE, told.version)).unchanged
        assert await pulled(there, second) is None
        more = await there.agents.images_since(NODE, told.version)
        assert (more.changes, [[*one.digests] for one in more.images], [*more.gone]) == (True, [[second]], [])
        assert [[layer.size_bytes > 0 for layer in one.layers] for one in more.images] == [[True]]
        has |= {one.mark: one for one in more.images}
        assert version_of(has) == more.version
        assert await there.agents.remove(NODE, first)
        less = await there.agents.images_since(NODE, more.version)
        assert (less.changes, [*less.images]) == (True, [])
        assert [first in has.pop(mark).digests for mark in less.gone] == [True]
        assert version_of(has) == less.version
        # To one that has missed the step between, both at once.
        both = await there.agents.images_since(NODE, told.version)
        assert ({*both.gone}, [[*one.digests] for one in both.images]) == ({*less.gone}, [[second]])
