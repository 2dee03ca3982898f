"""What becomes of a folder of changes: the layer of an image, whatever is in it."""

import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.engine.commit import layer


def write(
    upper: Path, lowers: Sequence[Path] = (), max_bytes: int = 1 << 20, squashed: Sequence[Path] = ()
) -> dict[str, Any]:
    """The answer of the program, with the archive in it."""
    with (upper.parent / "layer.tar").open("w+b") as file:
        request = {
            "uppers": [str(upper), *map(str, squashed)],
            "lowers": [str(one) for one in lowers],
            "mounts": ["/dev/rollbox/target", "/data"],
            "file": file.fileno(),
            "max_bytes": max_bytes,
        }
        answer = layer.written(request)
        file.seek(0)
        return {**answer, "tar": file.read()}


def entries(answer: dict[str, Any]) -> dict[str, tarfile.TarInfo]:
    assert "reason" not in answer, answer
    assert answer["digest"] == f"sha256:{hashlib.sha256(answer['tar']).hexdigest()}"
    assert answer["size_bytes"] == len(answer["tar"])
    with tarfile.open(fileobj=io.BytesIO(answer["tar"]), errors="surrogateescape") as read:
        return {one.name: one for one in read}


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    folder = tmp_path / "upper"
    folder.mkdir()
    return folder


def below(tmp_path: Path, upper: Path, *folders: str) -> Path:
    """A layer below with these folders, that are in the changes too."""
    lower = tmp_path / "lower"
    for name in ("", *folders):
        for root in (lower, upper):
            (root / name).mkdir(parents=True, exist_ok=True)
    return lower


def test_files_of_all_kinds(tmp_path: Path, upper: Path) -> None:
    (upper / "file").write_bytes(b"content")
    (upper / "file").chmod(0o4755)
    os.utime(upper / "file", (1_000_000_000.9, 1_000_000_000.9))
    os.link(upper / "file", upper / "same")
    (upper / "link").symlink_to("/etc/passwd")
    os.mkfifo(upper / "pipe")
    (upper / "folder").mkdir(mode=0o700)
    (upper / "folder" / "empty").touch()
    found = entries(write(upper, [below(tmp_path, upper)]))
    assert list(found) == ["file", "folder", "folder/empty", "link", "pipe", "same"]
    assert (found["file"].mode, found["file"].mtime, found["file"].size) == (0o4755, 1_000_000_000, 7)
    assert (found["same"].islnk(), found["same"].linkname) == (True, "file")
    assert (found["link"].issym(), found["link"].linkname) == (True, "/etc/passwd")
    assert found["pipe"].isfifo()
    assert (found["folder"].isdir(), found["folder"].mode) == (True, 0o700)


def test_what_is_not_for_an_image_is_told(upper: Path, tmp_path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(upper)  # a socket's path is short
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()
    (upper / ".wh.passwd").touch()
    (upper / "line\nbreak").symlink_to("x")
    (upper / "line\nbreak").unlink()
    answer = write(upper, [below(tmp_path, upper)])
    assert entries(answer) == {}
    assert answer["skipped"] == ["/.wh.passwd: its name would remove another file", "/socket: a socket"]


def test_skipped_names_are_bounded_and_can_be_printed(upper: Path, tmp_path: Path) -> None:
    for number in range(layer.MOST_SKIPPED + 5):
        (upper / f".wh.\x1b[2J{number:04}").touch()
    skipped = write(upper, [below(tmp_path, upper)])["skipped"]
    assert (len(skipped), skipped[-1]) == (layer.MOST_SKIPPED + 1, "and 5 more")
    assert all(one.isprintable() and len(one) <= layer.MAX_PATH_CHARS + 50 for one in skipped)


def test_names_are_any_bytes(upper: Path, tmp_path: Path) -> None:
    long = "/".join(["d" * 100] * 3)
    (upper / long).mkdir(parents=True)
    (upper / os.fsdecode(b"\xff\xfe")).write_text("raw")
    (upper / "schön").touch()
    found = entries(write(upper, [below(tmp_path, upper)]))
    assert long in found
    assert {"schön", "\udcff\udcfe"} <= set(found)


def test_a_layer_is_never_longer_than_it_may_be(upper: Path, tmp_path: Path) -> None:
    (upper / "large").write_bytes(5000 * b"x")
    answer = write(upper, [below(tmp_path, upper)], max_bytes=5000)
    assert (answer["reason"], len(answer["tar"]) <= 5000) == ("too_large", True)
    assert "/large" in answer["detail"]
    # A file of holes takes no room before it is read.
    with (upper / "large").open("r+b") as file:
        file.truncate(1 << 43)
    assert write(upper)["reason"] == "too_large"


def test_many_files_are_bounded_by_what_their_names_take(upper: Path, tmp_path: Path) -> None:
    for number in range(300):
        (upper / str(number)).touch()
    answer = write(upper, [below(tmp_path, upper)], max_bytes=100 * 512)
    assert (answer["reason"], len(answer["tar"]) <= 100 * 512) == ("too_large", True)


def test_what_is_too_deep_is_told(upper: Path, tmp_path: Path) -> None:
    here = os.open(upper, os.O_RDONLY)
    for _ in range(layer.MAX_DEPTH + 3):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    answer = write(upper, [below(tmp_path, upper)])
    assert len(entries(answer)) == layer.MAX_DEPTH
    assert [one.rpartition(": ")[2] for one in answer["skipped"]] == ["it is too deep"]


def test_no_link_leads_out_of_the_folder(upper: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("host")
    (upper / "out").symlink_to(tmp_path)
    found = entries(write(upper, [below(tmp_path, upper)]))
    assert (list(found), found["out"].issym()) == (["out"], True)
    assert b"host" not in write(upper)["tar"]


def test_the_mount_points_of_the_engine_are_left_out(upper: Path, tmp_path: Path) -> None:
    lower = below(tmp_path, upper, "etc", "run")
    for name in ("etc/hosts", "run/.containerenv", "etc/hostname"):
        (upper / name).touch()
    (upper / "etc/mtab").symlink_to("/proc/mounts")
    for name in ("proc", "sys", "dev/rollbox", "data", "run/secrets"):
        (upper / name).mkdir(parents=True)
    (upper / "dev/rollbox/target").touch()
    assert entries(write(upper, [lower])) == {}


def test_what_the_sandbox_has_at_their_place_stays(upper: Path, tmp_path: Path) -> None:
    lower = below(tmp_path, upper, "etc", "run")
    (lower / "etc/hosts").write_text("of the image")
    (upper / "etc/hosts").touch()
    (upper / "etc/hostname").write_text("of the sandbox")
    (upper / "data").mkdir()
    (upper / "data/file").touch()
    (upper / "run").chmod(0o700)
    assert set(entries(write(upper, [lower]))) == {"etc", "etc/hosts", "etc/hostname", "data", "data/file", "run"}


def test_the_root_is_told_where_its_rights_have_changed(upper: Path, tmp_path: Path) -> None:
    lower = below(tmp_path, upper)
    upper.chmod(0o711)
    assert entries(write(upper, [lower]))["."].mode == 0o711


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set these attributes and make these files")
def test_removed_files_and_replaced_folders(upper: Path, tmp_path: Path) -> None:
    lower = below(tmp_path, upper, "opt", "opt/all")
    os.mknod(upper / "opt/gone", 0o020000, os.makedev(0, 0))
    try:
        os.setxattr(upper / "opt/all", "trusted.overlay.opaque", b"y")
    except OSError:
        pytest.skip("the file system of the tests has no such attributes")
    os.mknod(upper / "null", 0o020666, os.makedev(1, 3))
    answer = write(upper, [lower])
    assert list(entries(answer)) == ["opt", "opt/all", "opt/all/.wh..wh..opq", "opt/.wh.gone"]
    assert answer["skipped"] == ["/null: a device"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set these attributes")
def test_attributes_that_are_the_files_own_are_kept(upper: Path, tmp_path: Path) -> None:
    (upper / "file").touch()
    try:
        os.setxattr(upper / "file", "user.mine", b"\x00\xff\n")
        os.setxattr(upper / "file", "trusted.other", b"1")
    except OSError:
        pytest.skip("the file system of the tests has no such attributes")
    answer = write(upper, [below(tmp_path, upper)])
    assert entries(answer)["file"].pax_headers["SCHILY.xattr.user.mine"] == "\x00\udcff\n"
    assert answer["skipped"] == ["/file: its attribute trusted.other"]
    os.setxattr(upper / "file", "trusted.overlay.metacopy", b"")
    assert write(upper)["reason"] == "unsupported"


def test_a_folder_that_is_gone_is_said(upper: Path) -> None:
    upper.rmdir()
    assert write(upper)["reason"] == "gone"


def test_the_program_runs_with_the_standard_library_alone(upper: Path) -> None:
    (upper / "a").touch()
    program = [sys.executable, "-I", "-S", str(layer.__file__)]
    request = f'{{"uppers": ["{upper}"], "lowers": [], "mounts": [], "file": 2, "max_bytes": 100000}}'
    done = subprocess.run(program, input=request.encode(), capture_output=True, check=True)
    assert b'"digest": "sha256:' in done.stdout
    with tarfile.open(fileobj=io.BytesIO(done.stderr)) as read:
        assert "a" in read.getnames()


@pytest.mark.parametrize("odd", [b"user.\xff", b"user.a=b"])
def test_an_attribute_whose_name_no_archive_can_have_is_told(upper: Path, tmp_path: Path, odd: bytes) -> None:
    (upper / "file").touch()
    try:
        os.setxattr(upper / "file", odd, b"1")
        os.setxattr(upper / "file", "user.mine", b"2")
    except OSError:
        pytest.skip("the file system of the tests has no such attributes")
    answer = write(upper, [below(tmp_path, upper)])
    assert entries(answer)["file"].pax_headers == {"SCHILY.xattr.user.mine": "2"}
    assert [one.partition(": ")[0] for one in answer["skipped"]] == ["/file"]
