"""Contexts of builds: archives of strangers, unpacked into a folder. Nothing is written outside it, or through a link.

Python's `tarfile` unpacks in the archive's order, through links that are there already. Here they are made last.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from rollbox_bridges import tar_heads
from rollbox_bridges.docker.words import Refusal

MOST_BYTES: Final = 1 << 30
"""The most that the files of a context may have; the platform takes no more."""
_MOST_FILES: Final = 100_000
MOST_ARCHIVE_BYTES: Final = MOST_BYTES + _MOST_FILES * 2 * tarfile.BLOCKSIZE
"""The most that an archive may have, uncompressed: its files, and two blocks of heads for each."""
_CHUNK_BYTES: Final = 2**18


def unpack(archive: IO[bytes], folder: Path, alone: frozenset[str]) -> None:
    """Unpack a context; blocks. Owners and times are dropped: no build reads them.

    Args:
        archive: uncompressed, and seekable.
        folder: where to; empty.
        alone: paths that must not be links, since they are read by themselves.

    Raises:
        Refusal: it is no archive, too large, or has what no context may have; the message names it.
    """
    archive.seek(0)
    try:
        tar_heads.check(archive, _MOST_FILES, MOST_ARCHIVE_BYTES)
    except tar_heads.HeadsError as error:
        raise Refusal(error.status, f"the build context {error.message}") from error
    archive.seek(0)
    try:
        with tarfile.open(fileobj=archive, mode="r:") as opened:
            entries = _planned(opened)
            if linked := sorted(path for path in alone if path in entries and not entries[path].isreg()):
                raise Refusal(400, f"{linked[0]} of the build context is no file")
            _write(opened, entries, folder)
    except (tarfile.TarError, ValueError, OSError) as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        raise Refusal(507 if full else 400, f"the build context cannot be unpacked: {error}") from error


def _planned(opened: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """The entries by their paths; of several with one path the last one, as when they are unpacked in order."""
    entries: dict[str, tarfile.TarInfo] = {}
    size_bytes = 0
    for entry in opened:
        path = _path(entry)
        if not path:
            continue
        if entry.issparse() or not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            raise Refusal(400, f"{path!r} of the build context is no file, folder or link")
        size_bytes += entry.size if entry.isreg() else 0
        if size_bytes > MOST_BYTES:
            raise Refusal(413, f"the files of the build context have more than {MOST_BYTES >> 20} MiB")
        entries.pop(path, None)
        entries[path] = entry
        if len(entries) > _MOST_FILES:
            raise Refusal(413, f"the build context has more than {_MOST_FILES} files")
    return entries


def _path(entry: tarfile.TarInfo) -> str:
    parts = [one for one in entry.name.split("/") if one not in {"", "."}]
    if ".." in parts or "\0" in entry.name:
        raise Refusal(400, f"{entry.name[:200]!r} leads out of the build context")
    return "/".join(parts)


def _write(opened: tarfile.TarFile, entries: Mapping[str, tarfile.TarInfo], folder: Path) -> None:
    for path, entry in entries.items():
        for parent in _parents(path):
            if parent in entries and not entries[parent].isdir():
                raise Refusal(400, f"{path!r} of the build context is below {parent!r}, which is no folder")
        at = folder / path
        at.parent.mkdir(parents=True, exist_ok=True)
        if entry.isdir():
            at.mkdir(exist_ok=True)
        elif entry.isreg() or entry.islnk():
            _write_file(opened, _content(path, entry, entries), at)
    for path, entry in entries.items():
        if entry.issym():
            (folder / path).symlink_to(entry.linkname)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _content(path: str, entry: tarfile.TarInfo, entries: Mapping[str, tarfile.TarInfo]) -> tarfile.TarInfo:
    """The file that an entry is, or is another name of."""
    if entry.isreg():
        return entry
    found = entries.get("/".join(one for one in entry.linkname.split("/") if one not in {"", "."}))
    if found is None or not found.isreg():
        raise Refusal(
            400, f"{path!r} of the build context is another name of {entry.linkname[:200]!r}, which is no file"
        )
    return found


def _write_file(opened: tarfile.TarFile, entry: tarfile.TarInfo, at: Path) -> None:
    content = opened.extractfile(entry)
    assert content is not None  # noqa: S101 - it is a file
    handle = os.open(at, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        left = entry.size
        while left and (data := content.read(min(left, _CHUNK_BYTES))):
            file.write(data)
            left -= len(data)
        os.fchmod(handle, stat.S_IMODE(entry.mode) | 0o600)
    if left:
        raise Refusal(400, f"the build context ends within {entry.name[:200]!r}")
