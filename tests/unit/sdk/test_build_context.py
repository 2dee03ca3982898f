"""The context of a build: the same archive for the same files, and nothing in it that is to stay out."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

import pytest

from rollbox import build_context
from rollbox.build_context import pack
from rollbox.dockerignore import Ignored
from rollbox.errors import InvalidArgument, PayloadTooLarge


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(folder: Path, ignored: str = "") -> list[str]:
    file, _ = pack(folder, Ignored(ignored))
    with file, tarfile.open(fileobj=file) as archive:
        return archive.getnames()


def digest(folder: Path) -> str:
    file, found = pack(folder, Ignored(""))
    file.close()
    return found


def test_the_same_files_are_the_same_archive_and_others_are_not(tmp_path: Path) -> None:
    one = made(tmp_path / "one", {"b/c": "x", "a": "y"})
    two = made(tmp_path / "two", {"a": "y", "b/c": "x"})
    for path in (two / "a", two / "b", two / "b" / "c"):
        os.utime(path, (time.time(), 1))
    assert digest(one) == digest(two)
    (two / "a").chmod(0o600)
    assert digest(one) == digest(two)
    (two / "a").chmod(0o755)
    assert digest(one) != digest(two)
    (two / "a").chmod(0o644)
    (two / "a").write_text("z")
    assert digest(one) != digest(two)


@pytest.mark.parametrize(
    ("ignored", "left"),
    [
        ("", ["Dockerfile", "a.env", "src", "src/b.env", "src/deep", "src/deep/c.pyc", "src/main.py"]),
        ("*.env", ["Dockerfile", "src", "src/b.env", "src/deep", "src/deep/c.pyc", "src/main.py"]),
        ("**/*.env\n**/*.pyc", ["Dockerfile", "src", "src/deep", "src/main.py"]),
        ("src\n!src/main.py", ["Dockerfile", "a.env", "src/main.py"]),
        ("src/**\n!src/deep", ["Dockerfile", "a.env", "src", "src/deep", "src/deep/c.pyc"]),
        ("# all\n*\n!src/main.py", ["src/main.py"]),
        ("/src/", ["Dockerfile", "a.env"]),
        ("./src/../src/deep", ["Dockerfile", "a.env", "src", "src/b.env", "src/main.py"]),
        ("?.env\nsrc/[a-d]*", ["Dockerfile", "src", "src/main.py"]),
        ("src/[^m]*", ["Dockerfile", "a.env", "src", "src/main.py"]),
    ],
)
def test_what_is_ignored_stays_out(tmp_path: Path, ignored: str, left: list[str]) -> None:
    files = ["Dockerfile", "a.env", "src/main.py", "src/b.env", "src/deep/c.pyc"]
    assert names(made(tmp_path, dict.fromkeys(files, "")), ignored) == left


def test_a_malformed_pattern_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"'\[a' is malformed"):
        Ignored("[a")


def test_what_is_ignored_is_not_read(tmp_path: Path) -> None:
    made(tmp_path, {"Dockerfile": ""})
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match="out is a link out of the context"):
        names(tmp_path, "pipe")
    with pytest.raises(InvalidArgument, match="pipe is no file, folder or link"):
        names(tmp_path, "out")
    assert names(tmp_path, "pipe\nout") == ["Dockerfile"]


@pytest.mark.parametrize("link", ["../x", "/etc/passwd", "a/../../x", ".."])
def test_links_that_lead_out_are_refused(tmp_path: Path, link: str) -> None:
    (tmp_path / "link").symlink_to(link)
    with pytest.raises(InvalidArgument, match="link is a link out of the context"):
        names(tmp_path)


def test_links_within_stay_links(tmp_path: Path) -> None:
    made(tmp_path, {"a/file": "x"})
    (tmp_path / "a" / "link").symlink_to("../a/file")
    file, _ = pack(tmp_path, Ignored(""))
    with file, tarfile.open(fileobj=file) as archive:
        assert archive.getmember("a/link").linkname == "../a/file"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_context, "MOST_FILES", 10)
    monkeypatch.setattr(build_context, "MOST_BYTES", 1 << 20)


@pytest.mark.usefixtures("small")
def test_a_context_that_is_too_large_names_the_dockerignore(tmp_path: Path) -> None:
    many = made(tmp_path / "many", {f"f{one}": "" for one in range(11)})
    with pytest.raises(PayloadTooLarge, match=r"more than 10 files: .*\.dockerignore"):
        names(many)
    assert len(names(many, "f0")) == 10
    large = made(tmp_path / "large", {"data": "x" * (2 << 20)})
    with pytest.raises(PayloadTooLarge, match=r"more than 1 MiB: .*\.dockerignore"):
        names(large)
    assert names(large, "data") == []
