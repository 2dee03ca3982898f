"""Unpacks a tar stream from a sandbox into a local directory. The stream is not trusted: nothing is written outside.

Every entry is opened by directory descriptors from the root down (openat), without following any link, so that no link
in the archive redirects a later entry. Symbolic links are made only when they stay inside: relative, with `..` only at
the beginning, since the parent of a real directory is a real one. What is there of another kind than an entry stays,
and the entry is skipped. Python's own tar filter is missing in early 3.11.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

from rollbox.errors import Internal, PayloadTooLarge
from rollbox.files import paths
from rollbox.files.info import TransferReport
from rollbox.landing import InTheWay, Landing, kind, there, told

_BLOCK = tarfile.BLOCKSIZE
_PIECE_BYTES = 2**20
# The limit of one long name or one extended header: a path has at most 4 KiB, but file attributes may come with it.
_MOST_EXTRA_BYTES = 2**20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Those of the machine, not of one entry: the rest cannot be written either.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_EXTRA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)


class _Refused(Exception):  # noqa: N818
    """The reason why an entry is skipped."""


class Unpacker:
    """Unpacks below one directory; `feed` it, then `finish`, then `close` in any case. Not thread-safe."""

    def __init__(self, root: Path, report: TransferReport, max_bytes: int | None = None) -> None:
        """Make the directory when it is missing.

        Args:
            root: the target directory; a link there is followed, since it is the caller's own.
            report: counts what is made and names what is skipped.
            max_bytes: PayloadTooLarge when the files have more data.

        Raises:
            InvalidArgument: it cannot be made, or something else is there.
        """
        self._place = root
        with told(root):
            root.mkdir(parents=True, exist_ok=True)
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent: tuple[tuple[str, ...], int] | None = None
        self._report = report
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._reading = self._archive()
        self._wanted = next(self._reading)
        self._done = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the archive, any number of them.

        Raises:
            InvalidArgument: there is no room on this machine.
        """
        if self._done:
            return
        with told(self._place):
            self._fed(data)

    def _fed(self, data: bytes) -> None:
        self._held += data
        while len(self._held) >= self._wanted:
            piece = bytes(self._held[: self._wanted])
            del self._held[: self._wanted]
            try:
                self._wanted = self._reading.send(piece)
            except StopIteration:
                self._done = True
                return

    def finish(self) -> None:
        """Check that the archive has reached its end.

        Raises:
            Internal: it broke off.
        """
        if not self._done:
            raise Internal("the archive broke off before its end")

    def close(self) -> None:
        """Close all descriptors, and remove a file that was not written to its end. Idempotent."""
        self._reading.close()
        self._leave_parent()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _archive(self) -> Generator[int, bytes, None]:
        extra: dict[str, str] = {}
        while True:
            block = yield _BLOCK
            if not any(block):
                return
            try:
                entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.TarError as error:
                raise Internal(f"the archive is damaged: {error}") from error
            if entry.type in _EXTRA or entry.type == tarfile.XGLTYPE:
                told = yield from self._extra(entry)
                # A global header holds comments in practice; a path for all entries would make no sense.
                extra |= {} if entry.type == tarfile.XGLTYPE else told
                continue
            _complete(entry, extra)
            extra = {}
            yield from self._entry(entry)

    def _extra(self, entry: tarfile.TarInfo) -> Generator[int, bytes, dict[str, str]]:
        if not 0 <= entry.size <= _MOST_EXTRA_BYTES:
            raise Internal(f"the archive has a header of {entry.size} bytes: it is damaged")
        padded = yield entry.size + -entry.size % _BLOCK
        data = padded[: entry.size]
        if entry.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            name = "path" if entry.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
            return {name: paths.decoded(data.split(b"\0")[0])}
        return _records(data)

    def _entry(self, entry: tarfile.TarInfo) -> Generator[int, bytes, None]:
        if entry.size < 0 or entry.type == tarfile.GNUTYPE_SPARSE:
            raise Internal(f"the archive has an entry that cannot be read: {paths.shown(entry.name)!r}")
        file: Landing | None = None
        try:
            try:
                file = self._made(entry)
            except (_Refused, InTheWay, OSError) as error:
                if isinstance(error, OSError) and error.errno in _NO_ROOM:
                    raise
                self._report.skip(entry.name, getattr(error, "strerror", None) or str(error))
            yield from self._data(entry, file)
            if file is not None:
                file.commit(entry.mode, entry.mtime)
        finally:
            # Half a file looks like a whole one to a program that reads the directory later: it has no name yet.
            if file is not None:
                file.close()

    def _data(self, entry: tarfile.TarInfo, file: Landing | None) -> Generator[int, bytes, None]:
        # Only files have data; in the header of a link or directory the size is ignored.
        left = entry.size if entry.type not in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE) else 0
        padding = -left % _BLOCK
        if file is not None:
            self._count(left)
        while left:
            piece = yield min(left, _PIECE_BYTES)
            left -= len(piece)
            if file is not None:
                file.write(piece)
        if padding:
            yield padding

    def _count(self, size: int) -> None:
        self._report.size_bytes += size
        if self._max_bytes is not None and self._report.size_bytes > self._max_bytes:
            hint = "Raise max_bytes, or download less; what was written so far stays."
            raise PayloadTooLarge(f"the directory has more than {self._max_bytes} bytes of data", hint=hint)

    def _made(self, entry: tarfile.TarInfo) -> Landing | None:
        """Make the entry; returns the file to be written, None for all others."""
        parts = _parts(entry.name)
        if not parts:
            return None
        parent, name = self._directory(parts[:-1]), parts[-1]
        made = None
        if entry.type == tarfile.DIRTYPE:
            self._make_directory(parent, name, entry.mode)
        elif entry.type in _PLAIN:
            made = Landing(name, at=parent)
        elif entry.type == tarfile.SYMTYPE:
            _check_link(entry.linkname, len(parts) - 1)
            _old_link_gone(parent, name)
            os.symlink(entry.linkname, name, dir_fd=parent)
        elif entry.type == tarfile.LNKTYPE:
            self._hard_link(entry.linkname, parts)
        else:
            raise _Refused("a device, FIFO or socket")
        self._report.count += 1
        return made

    def _make_directory(self, parent: int, name: str, mode: int) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            # The owner keeps all rights, to be able to fill it and to remove it.
            os.fchmod(made, mode & 0o777 | 0o700)
        finally:
            os.close(made)

    def _hard_link(self, target: str, parts: tuple[str, ...]) -> None:
        origin = _parts(target)
        if not origin:
            raise _Refused("a link to the directory itself")
        source = os.dup(self._directory(origin[:-1]))
        try:
            first = os.lstat(origin[-1], dir_fd=source)
            # A hard link to a symbolic link, in another directory, could lead outside.
            if not stat.S_ISREG(first.st_mode):
                raise _Refused("a link to something that is not a file")
            parent = self._directory(parts[:-1])
            if origin == parts:
                raise _Refused("a link to itself")
            old = there(parts[-1], parent)
            if old is None:
                os.link(origin[-1], parts[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
            elif not os.path.samestat(old, first):
                _copied(source, origin[-1], parent, parts[-1])
        finally:
            os.close(source)

    def _directory(self, parts: tuple[str, ...]) -> int:
        """Open a directory from the root down: makes missing ones, follows no link. The last one opened is cached."""
        if self._parent is not None and self._parent[0] == parts:
            return self._parent[1]
        self._leave_parent()
        at = os.dup(self._root)
        try:
            for part in parts:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
                below = os.open(part, _DIRECTORY, dir_fd=at)
                os.close(at)
                at = below
        except OSError:
            os.close(at)
            raise
        self._parent = (parts, at)
        return at

    def _leave_parent(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None


def _parts(name: str) -> tuple[str, ...]:
    if name.startswith("/"):
        raise _Refused("an absolute name")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise _Refused("a name that climbs with ..")
    return parts


def _check_link(target: str, depth: int) -> None:
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    if not target or target.startswith("/") or climbs > depth or ".." in parts[climbs:]:
        raise _Refused(f"a link that may lead outside: {paths.shown(target)!r}")


def _old_link_gone(parent: int, name: str) -> None:
    """Remove a symbolic link, in place of which another one comes."""
    try:
        found = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return
    if not stat.S_ISLNK(found.st_mode):
        raise _Refused(f"{kind(found.st_mode)} is there")
    os.unlink(name, dir_fd=parent)


def _copied(source: int, origin: str, parent: int, name: str) -> None:
    """Give a file that is there the content of another one: it stays the file that it is."""
    with os.fdopen(os.open(origin, _FILE, dir_fd=source), "rb", buffering=0) as file:
        status, landing = os.fstat(file.fileno()), Landing(name, at=parent)
        try:
            while data := file.read(_PIECE_BYTES):
                landing.write(data)
            landing.commit(status.st_mode, status.st_mtime)
        finally:
            landing.close()


def _complete(entry: tarfile.TarInfo, extra: dict[str, str]) -> None:
    """Apply the extended headers that precede an entry."""
    entry.name = extra.get("path", entry.name)
    entry.linkname = extra.get("linkpath", entry.linkname)
    try:
        entry.size = int(extra.get("size", entry.size))
        entry.mtime = float(extra.get("mtime", entry.mtime))
    except ValueError as error:
        raise Internal(f"the archive is damaged: {error}") from error


def _records(data: bytes) -> dict[str, str]:
    """Read the `length name=value` records of an extended header."""
    told: dict[str, str] = {}
    while data:
        digits, _, _ = data.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        name, separator, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not separator or length > len(data):
            raise Internal("the archive is damaged: an extended header is malformed")
        told[paths.decoded(name)] = paths.decoded(value)
        data = data[length:]
    return told
