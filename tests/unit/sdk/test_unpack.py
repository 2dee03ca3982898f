"""Unpacking an untrusted archive: nothing is written outside the directory."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbox.errors import Internal
from rollbox.files.info import TransferReport
from rollbox.files.unpack import Unpacker
from tests.support.examples import EXAMPLES


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"", mode: int = 0o644) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(data), mode
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + data + bytes(-len(data) % 512)


def unpack(root: Path, archive: bytes, piece: int = 10_000) -> TransferReport:
    report = TransferReport()
    unpacker = Unpacker(root, report)
    try:
        for start in range(0, len(archive), piece):
            unpacker.feed(archive[start : start + piece])
        unpacker.finish()
    finally:
        unpacker.close()
    return report


END = bytes(1024)
LINK, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "entries",
    [
        [member("/abs", data=b"x")],
        [member("../up", data=b"x")],
        [member("a/../../up", data=b"x")],
        [member("l", LINK, "/etc"), member("l/up", data=b"x")],
        [member("l", LINK, "..")],
        [member("l", LINK, "a/../../..")],
        [member("d/d/l", LINK, "../.."), member("d/d/l/../../up", data=b"x"), member("m", LINK, "d/d/l/../..")],
        [member("d/l", LINK, ".."), member("l", HARD, "d/l")],
        [member("l", HARD, "../outside")],
        [member("l", HARD, "/etc/passwd")],
        [member("l", HARD, "")],
        [member("dev", tarfile.CHRTYPE), member("fifo", tarfile.FIFOTYPE), member("block", tarfile.BLKTYPE)],
        [member("d", tarfile.DIRTYPE), member("d", LINK, "..")],
    ],
)
def test_what_leads_outside_is_left_out_and_the_rest_is_there(tmp_path: Path, entries: list[bytes]) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    root = tmp_path / "root"
    report = unpack(root, b"".join(entries) + member("fine", data=b"fine") + END)
    assert report.skipped_count >= 1
    assert (root / "fine").read_bytes() == b"fine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "root"]
    assert (tmp_path / "outside").read_bytes() == b"secret"
    for path in root.rglob("*"):
        assert path.resolve().is_relative_to(root.resolve())
        assert path.is_symlink() or path.is_dir() or path.read_bytes() != b"secret"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "mine").write_bytes(b"mine")
    (root / "l").symlink_to(tmp_path / "mine")
    (tmp_path / "folder").mkdir()
    (root / "d").symlink_to(tmp_path / "folder")
    report = unpack(root, member("l", data=b"x") + member("d/f", data=b"x") + END)
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert list((tmp_path / "folder").iterdir()) == []
    assert report.skipped["l"] == "a symbolic link is there"
    assert list(report.skipped) == ["l", "d/f"]


def test_modes_lose_what_is_dangerous(tmp_path: Path) -> None:
    archive = member("s", data=b"", mode=0o6755) + member("d", tarfile.DIRTYPE, mode=0o1000) + member("d/f", data=b"")
    unpack(tmp_path, archive + END)
    assert (tmp_path / "s").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o700


def test_extended_headers_are_read(tmp_path: Path) -> None:
    made = io.BytesIO()
    name = "n" * 200 + "/\udcff"
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
        info = tarfile.TarInfo(name)
        info.size, info.mtime = 3, 1.5
        tar.addfile(info, io.BytesIO(b"pax"))
    unpack(tmp_path, made.getvalue(), piece=7)
    assert (tmp_path / name).read_bytes() == b"pax"
    assert (tmp_path / name).stat().st_mtime == 1.5


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        member("a", data=b"x"),
        member("a", data=bytes(2000))[:1000],
        b"x" * 512,
        member("x", tarfile.XHDTYPE, data=b"99 a=b\n") + END,
        member("x", tarfile.XHDTYPE, data=b"8 size=x\n") + member("a") + END,
        member("x", tarfile.GNUTYPE_LONGNAME, data=bytes(2**20 + 1)) + END,
        member("x", tarfile.GNUTYPE_SPARSE) + END,
    ],
)
def test_what_is_no_archive_is_the_platforms_fault(tmp_path: Path, archive: bytes) -> None:
    with pytest.raises(Internal):
        unpack(tmp_path, archive)


NAMES = st.sampled_from(["a", "b", "a/b", "a/c", "../x", "/x", "a/../x", ".", "a/b/c", "b/x"])
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, LINK, HARD, tarfile.FIFOTYPE])
TARGETS = st.sampled_from(["a", "b", "..", "../..", "../b", "/", "a/b", "a/../..", ".", "../../outside"])


@settings(max_examples=3 * EXAMPLES)
@given(entries=st.lists(st.tuples(NAMES, KINDS, TARGETS), max_size=8), piece=st.integers(1, 2000))
def test_no_order_of_entries_leads_outside(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, bytes, str]], piece: int
) -> None:
    outer = tmp_path_factory.mktemp("unpack")
    (outer / "outside").write_bytes(b"secret")
    data = [member(name, kind, link, b"data" if kind == tarfile.REGTYPE else b"") for name, kind, link in entries]
    unpack(outer / "top" / "root", b"".join(data) + END, piece)
    assert sorted(str(path.relative_to(outer)) for path in (*outer.iterdir(), *(outer / "top").iterdir())) == [
        "outside",
        "top",
        "top/root",
    ]
    assert (outer / "outside").read_bytes() == b"secret"
    for path in (outer / "top" / "root").rglob("*"):
        assert path.is_symlink() or path.resolve().is_relative_to(outer / "top" / "root")
        if path.is_symlink():
            assert os.path.realpath(path).startswith(str(outer / "top" / "root"))


def test_a_file_that_was_cut_off_is_not_left_behind(tmp_path: Path) -> None:
    unpacker = Unpacker(tmp_path, TransferReport())
    unpacker.feed(member("d/whole", data=b"1" * 600))
    unpacker.feed(member("d/half", data=b"2" * (3 << 20))[: 2 << 20])
    assert [one.stat().st_size > 0 for one in (tmp_path / "d").iterdir() if one.name != "whole"] == [True]
    unpacker.close()
    assert [one.name for one in (tmp_path / "d").iterdir()] == ["whole"]
