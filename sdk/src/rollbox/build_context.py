"""The context of a build as an archive that is the same for the same files, whenever and wherever it is made."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from rollbox.dockerignore import Ignored
from rollbox.errors import InvalidArgument, PayloadTooLarge

MOST_FILES = 100_000
MOST_BYTES = 1 << 30
# What every file of an image has that came with a context: archives of another kind know no time before 1980.
_TIME_S = 315_619_200
_LESS = "leave out what the Dockerfile does not need by a .dockerignore in the folder"


def pack(folder: Path, ignored: Ignored) -> tuple[IO[bytes], str]:
    """Make the archive of a folder; blocks for as long as its files take to read.

    Names, contents, links and rights count, and neither owners nor times. What `ignored` excludes is not read.

    Args:
        folder: the context.
        ignored: what stays out.

    Returns:
        the archive, in a file without a name which the caller closes, and its digest, `sha256:...`.

    Raises:
        InvalidArgument: something in it cannot be in a context, or cannot be read: the message names it.
        PayloadTooLarge: it has too many files, or too many bytes.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        written = _Hashed(file)
        with tarfile.open(
            fileobj=cast("IO[bytes]", written), mode="w|", format=tarfile.PAX_FORMAT, dereference=False
        ) as archive:
            files = total_bytes = 0
            for name, path, found in _walked(folder, ignored):
                files, total_bytes = files + 1, total_bytes + (found.st_size if stat.S_ISREG(found.st_mode) else 0)
                _check_size(folder, files, total_bytes)
                _add(archive, name, path, found)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file, f"sha256:{written.hash.hexdigest()}"


class _Hashed:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO | IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write to both."""
        self.hash.update(data)
        return self._file.write(data)


def _walked(folder: Path, ignored: Ignored, below: str = "") -> Iterator[tuple[str, Path, os.stat_result]]:
    """What is in a context, by name, a folder before what is in it."""
    try:
        entries = sorted(os.scandir(folder / below), key=lambda one: os.fsencode(one.name))
    except OSError as error:
        raise InvalidArgument(f"{folder / below} cannot be read: {error.strerror}; {_LESS}") from error
    for entry in entries:
        name = posixpath.join(below, entry.name)
        is_folder = entry.is_dir(follow_symlinks=False)
        out = ignored(name)
        if not out:
            yield name, Path(entry.path), entry.stat(follow_symlinks=False)
        if is_folder and (not out or ignored.may_hold(name)):
            yield from _walked(folder, ignored, name)


def _check_size(folder: Path, files: int, total_bytes: int) -> None:
    if files > MOST_FILES:
        raise PayloadTooLarge(f"{folder} has more than {MOST_FILES} files: {_LESS}")
    if total_bytes > MOST_BYTES:
        raise PayloadTooLarge(f"the files of {folder} have more than {MOST_BYTES >> 20} MiB: {_LESS}")


def _add(archive: tarfile.TarFile, name: str, path: Path, found: os.stat_result) -> None:
    entry = _entry(name, found)
    if stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        if _leads_out(name, entry.linkname):
            raise InvalidArgument(f"{path} is a link out of the context, to {entry.linkname!r}: copy what it leads to")
        archive.addfile(entry)
    elif stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    elif stat.S_ISREG(found.st_mode):
        entry.size = found.st_size
        _add_content(archive, entry, path)
    else:
        raise InvalidArgument(f"{path} is no file, folder or link; {_LESS}")


def _entry(name: str, found: os.stat_result) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    # Those of the group and of others depend on a umask, and Git keeps but one of all of them.
    mode = 0o755 if stat.S_ISDIR(found.st_mode) or found.st_mode & 0o100 else 0o644
    entry.mode, entry.mtime = mode | (found.st_mode & 0o7000), _TIME_S
    return entry


def _add_content(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    try:
        # Not through a link that has taken its place meanwhile.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        what = "was replaced while it was read" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise InvalidArgument(f"{path} {what}; {_LESS}") from error
    with os.fdopen(handle, "rb") as content:
        try:
            archive.addfile(entry, content)
        except OSError as error:
            raise InvalidArgument(f"{path} has changed while it was read: {error}") from error


def _leads_out(name: str, link: str) -> bool:
    return link.startswith("/") or posixpath.normpath(posixpath.join(posixpath.dirname(name), link)).startswith("..")


def read_text(path: Path, what: str) -> str:
    """Read a file of a build.

    Raises:
        InvalidArgument: it cannot be read, or is no UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said: Any = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"{what} {path} cannot be read: {said}") from error
