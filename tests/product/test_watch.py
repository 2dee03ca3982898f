"""Changes of files, told as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from rollbox import FileChange, Sandbox
from rollbox.errors import FileNotFound


async def told(changes: AsyncIterator[FileChange], path: str, kind: str) -> FileChange:
    """The first change of a kind at a path; fails when it does not come."""
    async with asyncio.timeout(20):
        async for change in changes:
            if (change.path, change.change) == (path, kind):
                return change
    raise AssertionError(f"the watch ended before {path} was {kind}")


async def test_every_kind_of_change_is_told(shared: Sandbox) -> None:
    place = f"/tmp/watch-{uuid4().hex[:8]}"
    await shared.exec(f"mkdir -p {place}/sub; echo x > {place}/old", check=True)
    changes = shared.files.watch(place, recursive=True)
    assert (await anext(changes)).change == "watching"
    steps = (
        (f"echo y > {place}/new", f"{place}/new", "created"),
        (f"echo y >> {place}/new", f"{place}/new", "written"),
        (f"chmod 600 {place}/old", f"{place}/old", "attributes"),
        (f"mv {place}/old {place}/sub/moved", f"{place}/sub/moved", "moved"),
        (f"mkdir {place}/later", f"{place}/later", "created"),
        (f"sleep 0.5; echo z > {place}/later/deep", f"{place}/later/deep", "created"),
        (f"rm {place}/new", f"{place}/new", "removed"),
    )
    for command, path, kind in steps:
        await shared.exec(command, check=True)
        change = await told(changes, path, kind)
        if kind == "moved":
            assert change.origin == f"{place}/old"
    await changes.aclose()


async def test_our_own_writes_are_told_as_those_of_programs(shared: Sandbox) -> None:
    place = f"/tmp/watch-{uuid4().hex[:8]}"
    await shared.files.mkdir(place)
    changes = shared.files.watch(place, recursive=True)
    assert (await anext(changes)).change == "watching"
    await shared.files.write(f"{place}/whole", b"new")
    await shared.files.write(f"{place}/whole", b"instead")
    await shared.files.copy(f"{place}/whole", f"{place}/second")
    await shared.files.copy(f"{place}/whole", f"{place}/second", replace=True)
    await shared.files.mkdir(f"{place}/last")
    kinds = [("whole", "created"), ("whole", "written"), ("whole", "written")]
    kinds += [("second", "created"), ("second", "written"), ("second", "written"), ("last", "created")]
    async with asyncio.timeout(20):
        came = [await anext(changes) for _ in kinds]
    assert [(one.path.removeprefix(f"{place}/"), one.change) for one in came] == kinds
    await changes.aclose()


async def test_a_file_that_is_watched_alone_is_written_and_not_made_anew(shared: Sandbox) -> None:
    path = f"/tmp/watch-{uuid4().hex[:8]}"
    await shared.files.write(path, b"old")
    changes = shared.files.watch(path)
    assert (await anext(changes)).change == "watching"
    await shared.files.write(path, b"new")
    await shared.exec(f"rm {path}", check=True)
    async with asyncio.timeout(20):
        came = [await anext(changes) for _ in range(2)]
    assert [one.change for one in came] == ["written", "removed"]
    await changes.aclose()


# The level's last test: taking the installation off, for which Helm has five minutes, is part of it.
@pytest.mark.timeout(500)
async def test_what_is_not_there_cannot_be_watched(shared: Sandbox) -> None:
    with pytest.raises(FileNotFound):
        await anext(shared.files.watch("/no/such/directory"))
