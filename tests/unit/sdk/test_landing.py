"""A copy to this side: what is there keeps its kind, owner and other names; nothing is left with its old content."""

import asyncio
import errno
import os
import socket
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rollbox import Client, Files
from rollbox.errors import InvalidArgument
from rollbox.landing import InTheWay, Landing
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import rollbox
from tests.unit.sdk.test_cli_files import root as root  # noqa: PLC0414 - a fixture
from tests.unit.sdk.test_unpack import END, HARD, LINK, member, unpack

NEW = b"new content"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices and gives files away")


@pytest.fixture
async def files(client: Client, fake: FakeGateway, tmp_path: Path) -> Files:
    fake.files.root = tmp_path / "root"
    fake.files.root.mkdir()
    (fake.files.root / "f").write_bytes(NEW)
    (fake.files.root / "f").chmod(0o640)
    os.utime(fake.files.root / "f", (1_000_000_000.5, 1_000_000_000.5))
    return (await client.create("python")).files


def left(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name.startswith(".rollbox-"))


async def test_a_download_writes_through_a_link_and_under_all_names(files: Files, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "real").write_bytes(b"old, and longer than the new one")
    (here / "link").symlink_to("real")
    os.link(here / "real", here / "second")
    await files.download("/f", here / "link")
    assert (here / "link").readlink() == Path("real")
    assert [(here / name).read_bytes() for name in ("real", "second")] == [NEW, NEW]
    assert (here / "real").stat().st_ino == (here / "second").stat().st_ino
    assert left(here) == []


async def test_a_download_keeps_mode_and_time_of_the_sandboxes_file(files: Files, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    for name in ("new", "old"):
        await files.download("/f", tmp_path / name)
        found = (tmp_path / name).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_mtime) == (0o640, 1_000_000_000.5)


@AS_ROOT
async def test_a_file_of_another_owner_stays_its_own(files: Files, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"old")
    os.chown(tmp_path / "theirs", 1000, 1001)
    await files.download("/f", tmp_path / "theirs")
    found = (tmp_path / "theirs").stat()
    assert (found.st_uid, found.st_gid, (tmp_path / "theirs").read_bytes()) == (1000, 1001, NEW)


async def test_attributes_of_a_file_stay(files: Files, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"old")
    os.setxattr(tmp_path / "mine", "user.mine", b"kept")
    await files.download("/f", tmp_path / "mine")
    assert (os.getxattr(tmp_path / "mine", "user.mine"), (tmp_path / "mine").read_bytes()) == (b"kept", NEW)


async def test_a_fifo_gets_the_data_when_a_reader_comes(files: Files, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    loading = asyncio.create_task(files.download("/f", fifo))
    read = await asyncio.to_thread(fifo.read_bytes)
    await loading
    assert (read, stat.S_ISFIFO(fifo.stat().st_mode)) == (NEW, True)


async def test_a_download_to_a_fifo_without_a_reader_can_be_cancelled(files: Files, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    loading = asyncio.create_task(files.download("/f", tmp_path / "fifo"))
    await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading


async def test_a_download_to_a_reader_that_stops_reading_can_be_cancelled(
    files: Files, fake: FakeGateway, tmp_path: Path
) -> None:
    fifo, moved = tmp_path / "fifo", asyncio.Event()
    os.mkfifo(fifo)
    (fake.files.root / "large").write_bytes(bytes(8 << 20))
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    loading = asyncio.create_task(files.download("/large", fifo, progress=lambda _: moved.set()))
    await moved.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    os.close(reader)


@AS_ROOT
async def test_a_device_stays_a_device_and_its_trouble_is_told(files: Files, tmp_path: Path) -> None:
    for name, minor in (("null", 3), ("full", 7)):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    await files.download("/f", tmp_path / "null")
    with pytest.raises(InvalidArgument, match="No space left") as caught:
        await files.download("/f", tmp_path / "full")
    assert caught.value.details == {"reason": "local", "errno": "ENOSPC"}
    assert caught.value.mask_sample
    assert all(stat.S_ISCHR((tmp_path / name).lstat().st_mode) for name in ("null", "full"))


def a_socket(place: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place))
    listening.close()


def a_terminal(place: Path) -> None:
    place.symlink_to(os.ttyname(os.openpty()[1]))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (a_socket, "a socket is there"),
        (lambda place: place.symlink_to("nothing"), "link to nothing"),
        (lambda place: place.symlink_to(place.name), "symbolic links"),
        (lambda place: (place / "f").mkdir(parents=True), "a directory is there"),
        (a_terminal, "rollbox exec ID -- cat"),
    ],
)
async def test_what_cannot_take_the_content_is_refused_before_anything_happens(
    files: Files, fake: FakeGateway, tmp_path: Path, made: Callable[[Path], object], said: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    made(here / "f")
    before, asked = (here / "f").lstat(), len(fake.files.queries)
    with pytest.raises(InvalidArgument, match=said):
        await files.download("/f", here / "f")
    after = (here / "f").lstat()
    assert (after.st_ino, after.st_mode, len(fake.files.queries)) == (before.st_ino, before.st_mode, asked)
    assert [one.name for one in here.iterdir()] == ["f"]


async def test_a_directory_that_is_not_there_is_not_made_a_file(files: Files, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="does not exist here"):
        await files.download("/f", f"{tmp_path}/new/")
    (tmp_path / "f").write_bytes(b"mine")
    with pytest.raises(InvalidArgument, match="cannot be written here"):
        await files.download_dir("/", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"mine"


def test_a_file_under_a_mount_is_written_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    (tmp_path / "mounted").write_bytes(b"old")
    inode = (tmp_path / "mounted").stat().st_ino
    monkeypatch.setattr(os, "replace", busy)
    assert landed(tmp_path / "mounted") == (NEW, 0o600)
    assert ((tmp_path / "mounted").stat().st_ino, left(tmp_path)) == (inode, [])


def test_a_file_in_a_folder_that_takes_no_new_ones_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def staged(landing: Landing, place: str, stage: Callable[[Landing, str], None] = Landing._stage) -> None:
        if place.startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "not here")
        stage(landing, place)

    monkeypatch.setattr(Landing, "_stage", staged)
    (tmp_path / "there").write_bytes(b"old")
    assert landed(tmp_path / "there") == (NEW, 0o600)
    with pytest.raises(PermissionError):
        landed(tmp_path / "not_there")


def test_a_full_disk_leaves_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    (tmp_path / "one").write_bytes(b"old")
    os.link(tmp_path / "one", tmp_path / "two")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):
        landed(tmp_path / "one")
    assert ((tmp_path / "two").read_bytes(), left(tmp_path)) == (b"old", [])


def landed(place: Path) -> tuple[bytes, int]:
    landing = Landing(str(place))
    try:
        landing.write(NEW)
        landing.commit(0o600)
    finally:
        landing.close()
    return place.read_bytes(), stat.S_IMODE(place.stat().st_mode)


def things(root: Path) -> None:
    """One of each kind that is no file."""
    (root / "link").symlink_to(root / "file")
    (root / "file").write_bytes(b"old")
    os.mkfifo(root / "fifo")
    a_socket(root / "socket")
    (root / "folder").mkdir()


@pytest.mark.parametrize(
    ("entry", "kinds"),
    [
        (lambda name: member(name, data=NEW), ["link", "fifo", "socket", "folder"]),
        (lambda name: member(name, LINK, "file"), ["file", "fifo", "socket", "folder"]),
        (lambda name: member("x", data=NEW) + member(name, HARD, "x"), ["link", "fifo", "socket", "folder"]),
        (lambda name: member(name, tarfile.DIRTYPE), ["link", "fifo", "socket", "file"]),
        (lambda name: member(f"{name}/below", data=NEW), ["link", "fifo", "socket", "file"]),
    ],
)
def test_nothing_of_a_directory_takes_the_place_of_another_kind(
    tmp_path: Path, entry: Callable[[str], bytes], kinds: list[str]
) -> None:
    things(tmp_path)
    before = {name: (tmp_path / name).lstat() for name in kinds}
    report = unpack(tmp_path, b"".join(map(entry, kinds)) + END)
    assert sorted(name.partition("/")[0] for name in report.skipped) == sorted(kinds)
    after = {name: (tmp_path / name).lstat() for name in kinds}
    assert {name: (one.st_ino, one.st_mode) for name, one in before.items()} == {
        name: (one.st_ino, one.st_mode) for name, one in after.items()
    }
    assert (tmp_path / "file").read_bytes() == b"old"
    assert left(tmp_path) == []


def test_files_of_a_directory_keep_their_names_when_it_comes_again(tmp_path: Path) -> None:
    archive = member("a", data=NEW) + member("b", HARD, "a") + END
    unpack(tmp_path, archive.replace(NEW, b"old content"))
    report = unpack(tmp_path, archive)
    assert (report.count, report.skipped) == (2, {})
    assert (tmp_path / "b").read_bytes() == NEW
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino


def test_a_full_disk_ends_a_directory_with_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Landing, "write", full)
    with pytest.raises(InvalidArgument, match="No space left") as caught:
        unpack(tmp_path, member("a", data=NEW) + END)
    assert (caught.value.details["reason"], list(tmp_path.iterdir())) == ("local", [])


def test_a_name_that_somebody_else_chose_is_followed_nowhere(tmp_path: Path) -> None:
    things(tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    for name in ("link", "fifo", "socket", "folder"):
        with pytest.raises(InTheWay, match="is there"):
            Landing(name, at=folder)
    os.close(folder)


def test_cp_leaves_a_fifo_a_fifo(root: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert rollbox("cp", "sb-1:/d/f", str(fifo)).exit_code == 0
    assert os.read(reader, 100) == b"data"
    os.close(reader)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_cp_makes_no_file_of_a_directory_that_is_not_there(root: Path, tmp_path: Path) -> None:
    told = rollbox("cp", "sb-1:/d/f", f"{tmp_path}/none/")
    assert (told.exit_code, (tmp_path / "none").exists()) == (2, False)
    assert "Make it first" in told.stderr


def test_the_report_of_a_directory_says_what_stands_there(root: Path, tmp_path: Path) -> None:
    (tmp_path / "down").mkdir()
    os.mkfifo(tmp_path / "down" / "f")
    told = rollbox("cp", "-r", "sb-1:/d/.", str(tmp_path / "down"))
    assert "skipped: f (a FIFO is there)" in told.stderr.replace("./f", "f")


def test_a_configuration_behind_a_link_is_written_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dotfiles").write_text("")
    (tmp_path / "link").symlink_to("dotfiles")
    monkeypatch.setenv("ROLLBOX_CONFIG", str(tmp_path / "link"))
    assert rollbox("config", "set", "lab", "http://lab:7420", "--key-env", "K").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert "http://lab:7420" in (tmp_path / "dotfiles").read_text()
    assert stat.S_IMODE((tmp_path / "dotfiles").stat().st_mode) == 0o600


def test_a_configuration_is_kept_in_a_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "nothing").symlink_to("missing")
    for name, said in (("fifo", "no file that contexts"), ("nothing", "link to nothing")):
        monkeypatch.setenv("ROLLBOX_CONFIG", str(tmp_path / name))
        told = rollbox("config", "set", "lab", "http://lab:7420", "--key-env", "K")
        assert (told.exit_code, said in told.stderr) == (2, True)
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert not (tmp_path / "missing").exists()


def test_a_report_that_is_only_tried_leaves_a_link_to_nothing_as_it_is(root: Path, tmp_path: Path) -> None:
    (tmp_path / "page").symlink_to("later.html")
    assert rollbox("bench", "python", "--scenario", "none", "--html", str(tmp_path / "page")).exit_code == 2
    assert (tmp_path / "page").is_symlink()
    assert not (tmp_path / "later.html").exists()
