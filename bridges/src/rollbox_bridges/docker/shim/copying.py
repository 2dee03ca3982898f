"""`cp`: files in and out of a container, as tar."""

from __future__ import annotations

import json
import posixpath
import sys
import tarfile
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from rollbox_bridges.docker.shim.calling import Daemon, DaemonError

_CHUNK_BYTES: Final = 2**18
_DIRECTORY: Final = 1 << 31
_HEADER: Final = "X-Docker-Container-Path-Stat"
_NOT_FOUND: Final = 404


def copy(daemon: Daemon, source: str, target: str) -> None:
    """Copy from CONTAINER:PATH to a path of this machine, or the other way; `-` is a tar archive on a standard stream.

    Raises:
        DaemonError: the container is not there, or refuses.
        ValueError: both paths are of this machine, or both of containers.
    """
    there, here = _split(source), _split(target)
    if (there is None) == (here is None):
        raise ValueError("one of the paths must be of a container, CONTAINER:PATH, and the other of this machine")
    if there is not None:
        _out(daemon, *there, target)
    elif here is not None:
        _in(daemon, source, *here)


def _split(text: str) -> tuple[str, str] | None:
    name, colon, path = text.partition(":")
    # A path of this machine may hold a colon where it begins with a slash or a dot.
    return None if not colon or name.startswith((".", "/")) or not name else (name, path)


def _in(daemon: Daemon, source: str, container: str, path: str) -> None:
    if source == "-":
        _put(daemon, container, path, iter(lambda: sys.stdin.buffer.read(_CHUNK_BYTES), b""))
        return
    kind = _kind(daemon, container, path)
    folder, name = posixpath.split(path.rstrip("/"))
    if kind == "directory":
        folder, name = path, Path(source).name
    elif kind is None and path.endswith("/") and not Path(source).is_dir():
        raise DaemonError(_NOT_FOUND, f"no such directory: {path}")
    if source.endswith("/.") and kind == "directory":
        # The content alone.
        name = "."
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
            archive.add(source, arcname=name, filter=_by_root)
        file.seek(0)
        _put(daemon, container, folder or "/", iter(lambda: file.read(_CHUNK_BYTES), b""))


def _by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Files that are copied in are root's, as with Docker's own client."""
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _put(daemon: Daemon, container: str, path: str, data: Iterator[bytes]) -> None:
    daemon.open("PUT", f"/containers/{container}/archive", {"path": path}, data).read()


def _out(daemon: Daemon, container: str, path: str, target: str) -> None:
    with daemon.open("GET", f"/containers/{container}/archive", {"path": path}) as answer:
        if target == "-":
            while data := answer.read(_CHUNK_BYTES):
                sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        _unpack(answer, Path(target), contents=path.endswith("/."))


def _unpack(data: BinaryIO, target: Path, *, contents: bool) -> None:
    """Unpack what a container has sent, which is not trusted: nothing is written outside the target."""
    into_folder = target.is_dir()
    folder = target if into_folder else target.parent
    with tarfile.open(fileobj=data, mode="r|") as archive:
        for entry in archive:
            first, _, rest = entry.name.partition("/")
            if contents and into_folder:
                first = "."
            elif not into_folder:
                first = target.name
            entry.name = f"{first}/{rest}" if rest else first
            if entry.islnk():
                top, _, below = entry.linkname.partition("/")
                entry.linkname = f"{first}/{below}" if below else (first if top else entry.linkname)
            archive.extract(entry, folder, filter="data")


def _kind(daemon: Daemon, container: str, path: str) -> str | None:
    """What is at a path of a container, behind links: a directory, a file, or nothing."""
    for _ in range(40):
        try:
            with daemon.open("HEAD", f"/containers/{container}/archive", {"path": path}) as answer:
                told = json.loads(b64decode(answer.headers[_HEADER]))
        except DaemonError as error:
            # Of a container that is not there, the call that follows says so.
            if error.status != _NOT_FOUND:
                raise
            return None
        if not told["linkTarget"]:
            return "directory" if told["mode"] & _DIRECTORY else "file"
        path = posixpath.join(posixpath.dirname(path.rstrip("/")), told["linkTarget"])
    raise DaemonError(0, f"too many links at {path}")
