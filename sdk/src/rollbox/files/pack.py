"""A local directory as a tar stream, made while it is sent, in memory that does not depend on its size."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator

from rollbox.files import paths
from rollbox.files.info import TransferReport
from rollbox.landing import failed

# A switch to a thread pays off for a piece of this size. A small file is read whole, so its header has its true size.
PIECE_BYTES = 2**18
_WHOLE_BYTES = 2**20
_KINDS = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def packed(root: bytes, report: TransferReport) -> Iterator[bytes]:
    """Make the archive of everything below `root`, in pieces of 256 KiB and more.

    Modes, symbolic links and empty directories are kept; owners are not: everything belongs to the user that unpacks.
    What an archive cannot hold, what cannot be read and what vanishes meanwhile is in `report.skipped`; so is a file
    that shrank or could not be read any more in the middle (its missing bytes are zeros).
    """
    held = bytearray()
    for part in _entries(root, b"", report):
        held += part
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held) + bytes(2 * tarfile.BLOCKSIZE)


def _entries(folder: bytes, below: bytes, report: TransferReport) -> Iterator[bytes]:
    try:
        opened = os.scandir(folder)
    except OSError as error:
        if below:
            raise
        raise failed(f"{paths.decoded(folder)} cannot be read here", error) from error
    with opened as found:
        for entry in found:
            name = below + entry.name
            try:
                yield from _entry(entry, name, report)
            except OSError as error:
                report.skip(paths.decoded(name), error.strerror or str(error))


def _entry(entry: os.DirEntry[bytes], name: bytes, report: TransferReport) -> Iterator[bytes]:
    status = entry.stat(follow_symlinks=False)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        yield _header(name, status, tarfile.DIRTYPE)
        yield from _entries(entry.path, name + b"/", report)
    elif kind == stat.S_IFLNK:
        yield _header(name, status, tarfile.SYMTYPE, link=os.readlink(entry.path))  # noqa: PTH115
    elif kind == stat.S_IFREG:
        yield from _file(entry.path, name, report)
    else:
        report.skip(paths.decoded(name), _KINDS.get(kind, "of an unknown kind"))


def _file(path: bytes, name: bytes, report: TransferReport) -> Iterator[bytes]:
    with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            report.skip(paths.decoded(name), "it was replaced by something that is not a file while it was read")
            return
        if status.st_size <= _WHOLE_BYTES:
            data = file.read(_WHOLE_BYTES)
            yield _header(name, status, tarfile.REGTYPE, size=len(data)) + data + _padding(len(data))
            return
        yield _header(name, status, tarfile.REGTYPE, size=status.st_size)
        left, why = status.st_size, "it shrank while it was read"
        try:
            while left and (data := file.read(min(left, _WHOLE_BYTES))):
                left -= len(data)
                yield data
        except OSError as error:
            # Its header is under way: what is missing of it would be taken from the next entry.
            why = f"it cannot be read here: {error.strerror}"
    if left:
        report.skip(paths.decoded(name), f"{why}: its last {left} bytes are zeros")
    while left:
        yield bytes(part := min(left, _WHOLE_BYTES))
        left -= part
    yield _padding(status.st_size)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _header(name: bytes, status: os.stat_result, kind: bytes, *, size: int = 0, link: bytes = b"") -> bytes:
    info = tarfile.TarInfo(paths.decoded(name))
    info.type, info.size, info.linkname = kind, size, paths.decoded(link)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), max(0, int(status.st_mtime))
    # The GNU format takes any bytes as a name.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
