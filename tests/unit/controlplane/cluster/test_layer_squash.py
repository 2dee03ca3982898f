"""A layer that stands for two: it makes of an image what these make, one after the other."""

import errno
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.cluster.engine.commit import layer

WHITEOUT: Final = "whiteout"
NAMES: Final = st.sampled_from("abc")
# A folder is (whether it is opaque, what is in it), a file its content.
Node = Any
LEAVES: Final = st.one_of(st.text("xyz", max_size=3), st.just(WHITEOUT))
TREES: Final = st.recursive(
    st.tuples(st.booleans(), st.dictionaries(NAMES, LEAVES, max_size=3)),
    lambda inner: st.tuples(st.booleans(), st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=3)),
    max_leaves=6,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make the marks of overlay file systems")


def make(folder: Path, tree: Node) -> None:
    opaque, entries = tree
    if opaque:
        os.setxattr(folder, "trusted.overlay.opaque", b"y")
    for name, node in entries.items():
        if node == WHITEOUT:
            os.mknod(folder / name, 0o020000, os.makedev(0, 0))
        elif isinstance(node, str):
            (folder / name).write_text(node)
        else:
            (folder / name).mkdir()
            make(folder / name, node)


def archive(uppers: list[Path], lowers: list[Path]) -> bytes:
    with tempfile.TemporaryFile() as file:
        request = {"uppers": [str(one) for one in uppers], "lowers": [str(one) for one in lowers], "mounts": []}
        answer = layer.written({**request, "file": file.fileno(), "max_bytes": 1 << 20})
        assert "reason" not in answer, answer
        file.seek(0)
        return file.read()


def applied(below: dict[str, str | None], data: bytes) -> dict[str, str | None]:
    """What an image has with one more layer, by path; None is a folder. As the specification of layers has it."""
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        mine: dict[str, str | None] = {}
        gone: list[str] = []
        for one in read:
            folder, _, name = one.name.rpartition("/")
            if name == layer.OPAQUE:
                gone.append(f"{folder}/" if folder else "")
            elif name.startswith(layer.WHITEOUT):
                path = f"{folder}/{name.removeprefix(layer.WHITEOUT)}".lstrip("/")
                gone += [path, f"{path}/"]
            elif one.name != ".":
                content = read.extractfile(one)
                mine[one.name] = None if content is None else content.read().decode()
    # A file hides a folder that was there, and a folder a file.
    gone += [f"{path}/" for path, content in mine.items() if content is not None]
    kept = {
        path: content
        for path, content in below.items()
        if not any(path == one or (one.endswith("/") and path.startswith(one)) or one == "" for one in gone)
    }
    for path in mine:
        kept.pop(path, None)
    return {**kept, **mine}


@settings(max_examples=150, deadline=None)
@given(TREES, TREES, TREES)
def test_it_stands_for_both(base: Node, first: Node, second: Node) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        folders = [Path(place) / name for name in ("base", "first", "second")]
        try:
            for folder, tree in zip(folders, (base, first, second), strict=True):
                folder.mkdir()
                make(folder, tree)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP):
                pytest.skip("the file system of the tests has no such attributes or files")
            raise
        below, one, two = folders
        image = applied({}, archive([below], []))
        apart = applied(applied(image, archive([one], [below])), archive([two], [one, below]))
        squashed = archive([two, one], [below])
        assert applied(image, squashed) == apart
        # Kernels show the mark of a removal as a file where there is no folder to remove something from.
        with tarfile.open(fileobj=io.BytesIO(squashed)) as read:
            marks = [one.name for one in read if one.name.rpartition("/")[2].startswith(layer.WHITEOUT)]
        removed = [mark.replace(layer.WHITEOUT, "") for mark in marks if not mark.endswith(layer.OPAQUE)]
        assert not {*removed} - {*image}


def test_a_link_lies_in_the_layer_that_has_its_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "a").write_text("old")
    os.link(first / "a", first / "b")
    (second / "a").write_text("new")
    with tarfile.open(fileobj=io.BytesIO(archive([second, first], []))) as read:
        found = {one.name: one for one in read}
        contents = {name: read.extractfile(name) for name in ("a", "b")}
        assert {name: file.read() for name, file in contents.items() if file} == {"a": b"new", "b": b"old"}
    assert found["b"].isreg()
