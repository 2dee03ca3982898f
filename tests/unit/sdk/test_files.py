"""Files: atomic writes, checked digests, resumed reads, and names of any bytes."""

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, Files
from rollbox.errors import (
    Conflict,
    Internal,
    InvalidArgument,
    NoSpace,
    PayloadTooLarge,
    StreamInterrupted,
)
from tests.support.gateway_fake import FakeGateway, Fault


@pytest.fixture
async def files(client: Client, fake: FakeGateway, tmp_path: Path) -> Files:
    fake.files.root = tmp_path / "root"
    fake.files.root.mkdir()
    return (await client.create("python")).files


async def test_a_source_that_fails_is_raised_and_the_old_file_stays(files: Files) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"new"
        raise ZeroDivisionError

    await files.write("/t", b"old")
    with pytest.raises(ZeroDivisionError):
        await files.write("/t", failing())
    assert await files.read("/t") == b"old"


async def test_an_iterator_is_not_read_twice_and_bytes_are(files: Files, fake: FakeGateway) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"1"

    fake.fail("write", Fault(after=True))
    assert (await files.write("/t", b"x")).size_bytes == 1
    fake.fail("write", Fault(after=True))
    with pytest.raises(InvalidArgument, match="cannot be read again"):
        await files.write("/t", parts())


async def test_a_read_goes_on_where_it_broke(files: Files, fake: FakeGateway) -> None:
    data = os.urandom(1_000_000)
    await files.write("/t", data)
    fake.files.cuts.extend([200_000, 10, 300_000])
    assert await files.read("/t") == data
    offsets = [int(query["offset"]) for query in fake.files.queries if "offset" in query]
    assert offsets == [0, 3 * 2**16, 3 * 2**16, 7 * 2**16]


async def test_a_file_that_changes_while_it_is_read_again_is_told(files: Files, fake: FakeGateway) -> None:
    await files.write("/t", bytes(300_000))
    fake.files.cuts.append(100_000)
    # So that what is read ahead is not yet at the cut.
    fake.files.piece_bytes = 2**13
    parts = files.open_read("/t")
    await anext(parts)
    await files.write("/t", bytes(400_000))
    with pytest.raises(Conflict, match="changed"):
        async for _ in parts:
            pass


async def test_wrong_digests_are_found_both_ways(files: Files, fake: FakeGateway) -> None:
    await files.write("/t", b"data")
    fake.files.wrong_digest = True
    with pytest.raises(Internal):
        await files.read("/t")
    with pytest.raises(StreamInterrupted, match="digest"):
        await files.write("/t", b"data")


async def test_a_problem_in_the_middle_is_typed(files: Files, fake: FakeGateway) -> None:
    await files.write("/t", b"data")
    fake.files.problem_at_end = {"code": "no_space", "detail": "full"}
    with pytest.raises(NoSpace):
        await files.read("/t")


@pytest.mark.parametrize(
    ("path", "limit"), [("", 1), (b"", 1), ("a\0b", 1), (3, 1), ("\ud800", 1), ("/", 100_001), ("/", 0)]
)
async def test_nonsense_is_refused_before_anything_is_sent(
    files: Files, fake: FakeGateway, path: Any, limit: int
) -> None:
    sent = len(fake.requests)
    with pytest.raises(InvalidArgument):
        await files.list(path, limit=limit)
    assert len(fake.requests) == sent


async def test_a_lost_answer_to_a_move_is_not_repeated(files: Files, fake: FakeGateway) -> None:
    await files.write("/a", b"")
    fake.fail("move", Fault(after=True))
    with pytest.raises(StreamInterrupted):
        await files.move("/a", "/b")
    assert fake.count("POST", "/file/move") == 1
    assert await files.exists("/b")


async def test_a_huge_listing_comes_whole(files: Files, fake: FakeGateway) -> None:
    for number in range(3000):
        (fake.files.root / f"{number:05}").touch()
    assert len(await files.list("/", limit=100_000)) == 3000


async def test_a_watch_tells_changes_and_that_some_may_be_lost(files: Files, fake: FakeGateway) -> None:
    fake.files.changes.put_nowait({"change": "created", "path": "/a"})
    fake.files.changes.put_nowait(None)
    fake.files.changes.put_nowait({"change": "moved", "path": "/b", "from": "/a"})
    async with aclosing(files.watch("/")) as changes:
        seen = [await anext(changes) for _ in range(5)]
    assert [change.change for change in seen] == ["watching", "created", "overflowed", "watching", "moved"]
    assert seen[-1].origin == "/a"


async def test_an_upload_brings_its_time_and_its_mode_to_a_new_file_alone(files: Files, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x")
    local.chmod(0o751)
    os.utime(local, (1_000_000_000.25, 1_000_000_000.25))
    for mode, given in ((0o751, None), (0o751, None), (0o600, 0o600), (0o600, None)):
        info = await files.upload(local, "/x", mode=given)
        assert (info.mode, info.modified_at_ms) == (mode, 1_000_000_000_250)


async def test_a_write_in_place_is_asked_for_and_else_is_none(files: Files, fake: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "f").touch()
    for in_place, told in ((True, b"true"), (False, None)):
        await files.write("/a", b"", in_place=in_place)
        await files.upload(tmp_path / "f", "/b", in_place=in_place)
        await files.upload_dir(tmp_path / "tree", "/c", in_place=in_place)
        assert [query.get("in_place") for query in fake.files.queries[-3:]] == [told] * 3


async def test_a_download_that_fails_leaves_the_old_file_and_nothing_else(
    files: Files, fake: FakeGateway, tmp_path: Path
) -> None:
    await files.write("/t", b"new")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "t").write_bytes(b"old")
    fake.files.wrong_digest = True
    with pytest.raises(Internal):
        await files.download("/t", tmp_path / "here" / "t")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "here").iterdir()] == [("t", b"old")]


def _tree(root: Path) -> None:
    (root / "empty").mkdir(parents=True)
    (root / "deep" / ("n" * 150) / ("m" * 120)).mkdir(parents=True)
    (root / "deep" / ("n" * 150) / ("m" * 120) / "f").write_bytes(b"deep")
    (root / "run").write_bytes(b"#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "large").write_bytes(os.urandom(2_500_000))
    (root / "link").symlink_to("deep/../run")
    (root / "plain").symlink_to("run")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_bytes(b"bytes")


async def test_a_directory_that_breaks_off_comes_again(files: Files, fake: FakeGateway, tmp_path: Path) -> None:
    _tree(fake.files.root / "t")
    fake.files.cuts.append(1_000_000)
    await files.download_dir("/t", tmp_path / "down")
    assert (tmp_path / "down" / "large").read_bytes() == (fake.files.root / "t" / "large").read_bytes()


async def test_a_directory_that_is_too_large_is_refused(files: Files, fake: FakeGateway, tmp_path: Path) -> None:
    _tree(fake.files.root / "t")
    with pytest.raises(PayloadTooLarge):
        await files.download_dir("/t", tmp_path / "down", max_bytes=1_000_000)


async def test_what_is_no_file_or_directory_is_told_with_the_way_out(files: Files, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(InvalidArgument, match="upload_dir"):
        await files.upload(tmp_path, "/x")
    with pytest.raises(InvalidArgument, match="not a directory"):
        await files.upload_dir(tmp_path / "f", "/x")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        await files.upload(tmp_path / "none", "/x")
