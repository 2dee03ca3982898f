"""Writes on this side: content for a local name, which keeps the kind of what is there, its owner and its other names.

What is there already decides, as for `cp`: a file of this user is replaced as a whole; a file that a new one could not
stand for (reached by a link, with other names, of another owner, with attributes, a mount point, in a folder that may
not be written) gets the content once that is complete; a FIFO, a device or a socket is no file, and stays what it is.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollbox.errors import InvalidArgument
from rollbox.request import untilded

_PIECE_BYTES = 2**20
_LOOK_MS = 200
_TO_WRITE = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Every file has it where SELinux is on, and a new one gets the right one.
_LABEL = "security.selinux"


class InTheWay(Exception):  # noqa: N818
    """What is there stays, since the content cannot become it."""


class NoReader(Exception):  # noqa: N818
    """The target is a FIFO that nobody reads."""


class Landing:
    """Content on its way to a local file: `write` it, then `commit`, then `close` in any case.

    Until `commit` a file that is there is unchanged, and so it stays without it. Not thread-safe, except `stop`.
    """

    def __init__(self, place: str, *, at: int | None = None) -> None:
        """Look what is there, and open what the content goes to.

        Args:
            place: the local file; a link there is followed, and a FIFO or a device is written while content comes.
            at: a directory's descriptor that `place` is relative to. With it nothing but a file is written, and no link
                is followed: for names that somebody else has chosen.

        Raises:
            InTheWay: something is there that the content cannot become.
            NoReader: it is a FIFO without a reader; a later attempt may find one.
            OSError: as the kernel says.
        """
        self._place, self._at = place, at
        self._stopped = False
        self._staged = ""
        self._old = there(place, at)
        self._into = -1
        self._file = -1
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        old = self._old
        if old is not None and not stat.S_ISREG(old.st_mode):
            self._file = self._into = _stream(self._place, old)
            return
        linked = stat.S_ISLNK(_mode(self._place, self._at))
        if old is not None and (linked or old.st_nlink > 1):
            self._into = self._existing()
        try:
            self._stage(os.path.realpath(self._place) if linked else self._place)
        except OSError:
            if old is None or self._at is not None:
                raise
            self._into = self._existing() if self._into < 0 else self._into
            self._stage(_elsewhere())
        if old is not None and self._into < 0 and not self._alike(old):
            self._into = self._existing()

    def _stage(self, place: str) -> None:
        name = os.path.join(os.path.dirname(place), f".rollbox-{os.urandom(8).hex()}")  # noqa: PTH118, PTH120
        self._file = os.open(name, _NEW, 0o600, dir_fd=self._at)
        self._staged = name

    def _existing(self) -> int:
        """Open what is there; it is truncated at the end, when all of the content has come."""
        only = 0 if self._at is None else os.O_NOFOLLOW
        file = os.open(self._place, _TO_WRITE | only, dir_fd=self._at)
        if self._old is None or not os.path.samestat(os.fstat(file), self._old):
            os.close(file)
            raise InTheWay("it is being replaced by another program")
        return file

    def _alike(self, old: os.stat_result) -> bool:
        """Whether a new file has all that the old one has, but for its content, mode and time."""
        new = os.fstat(self._file)
        return (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid) and not self._attributes()

    def _attributes(self) -> bool:
        if not hasattr(os, "listxattr"):
            return False
        try:
            file = os.open(self._place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._at)
        except OSError:
            return False
        try:
            return any(name != _LABEL for name in os.listxattr(file))
        except OSError:
            return False
        finally:
            os.close(file)

    def write(self, data: bytes) -> None:
        """Write all of the data; to a FIFO or a device at once, where it waits for its reader until `stop`."""
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except BlockingIOError:
                self._wait()

    def _wait(self) -> None:
        ready = select.poll()
        ready.register(self._file, select.POLLOUT)
        while not ready.poll(_LOOK_MS):
            if self._stopped:
                raise BlockingIOError(errno.EAGAIN, "its reader reads no more")

    def stop(self) -> None:
        """End a `write` that waits for a reader, in another thread."""
        self._stopped = True

    def commit(self, mode: int, modified_at_s: float | None = None) -> None:
        """Give the content its name, with the permissions of `mode` and the time; a FIFO or device keeps its own.

        Raises:
            OSError: there is no room to write it into the file that is there, which is unchanged then; or another one.
        """
        if not self._staged:
            return
        if self._into < 0:
            _dress(self._file, mode, modified_at_s)
            try:
                os.replace(self._staged, self._place, src_dir_fd=self._at, dst_dir_fd=self._at)
            except OSError:
                if self._old is None:
                    raise
                # A mount point has no other way.
                self._into = self._existing()
            else:
                self._staged = ""
                return
        _poured(self._file, self._into)
        _dress(self._into, mode, modified_at_s)

    def close(self) -> None:
        """Close the files, and remove what was not committed. Idempotent."""
        for file in {self._file, self._into} - {-1}:
            os.close(file)
        self._file = self._into = -1
        if self._staged:
            with suppress(OSError):
                os.unlink(self._staged, dir_fd=self._at)
            self._staged = ""


def beside(local: str | os.PathLike[str], name: str) -> Landing:
    """Open the target of a download: `local`, or `name` in it where that is a directory.

    Raises:
        InvalidArgument: nothing can be written there; nothing has happened.
        NoReader: as `Landing`.
    """
    place = untilded("the local path", os.fspath(local))
    into = Path(place).is_dir()
    if place.endswith("/") and not into:
        raise InvalidArgument(f"the directory {place} does not exist here", hint="Make it first.")
    target = Path(place) / name if into else Path(place)
    with told(target):
        return Landing(str(target))


@contextmanager
def told(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise trouble of this machine (a full disk, a missing right) as an error that says so, and is masked.

    Raises:
        InvalidArgument: `details` have `reason` "local" and the `errno` by name.
    """
    try:
        yield
    except InTheWay as error:
        raise InvalidArgument(f"{os.fspath(path)} cannot be written here: {error}", hint="") from error
    except OSError as error:
        raise failed(f"{os.fspath(path)} cannot be written here", error) from error


def failed(what: str, error: OSError) -> InvalidArgument:
    """Make the error for trouble of this machine: it says nothing about a sample."""
    named = {"reason": "local", "errno": errno.errorcode.get(error.errno or 0, "")}
    made = InvalidArgument(f"{what}: {error.strerror or error}", hint="", details=named)
    made.mask_sample = True
    return made


def folder(local: str | os.PathLike[str]) -> Path:
    """Return the path of a local directory that is there, or can be made.

    Raises:
        InvalidArgument: something else is there.
    """
    found = Path(untilded("the local path", os.fspath(local)))
    if found.exists() and not found.is_dir():
        raise InvalidArgument(f"{found} cannot be written here: {kind(found.stat().st_mode)} is there", hint="")
    return found


def directory(local: Path) -> Path:
    """Return the path of a local directory.

    Raises:
        InvalidArgument: it is not a directory.
    """
    untilded("the local path", str(local))
    if not local.is_dir():
        raise InvalidArgument(f"{local} is not a directory", hint="Use upload (`rollbox cp`) for a single file.")
    return local


def kind(mode: int) -> str:
    """Name the kind of what is there, from the mode of its status."""
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link", stat.S_IFSOCK: "a socket"}
    kinds |= {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "a file")


def _mode(place: str, at: int | None) -> int:
    try:
        return os.lstat(place, dir_fd=at).st_mode
    except FileNotFoundError:
        return 0


def _elsewhere() -> str:
    from tempfile import gettempdir  # noqa: PLC0415 - seldom needed

    return f"{gettempdir()}/"


def there(place: str, at: int | None) -> os.stat_result | None:
    """Look what is there, as `Landing` does.

    Raises:
        InTheWay: content cannot become it.
    """
    try:
        found = os.lstat(place, dir_fd=at)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode) and at is None:
        try:
            found = os.stat(place)  # noqa: PTH116
        except FileNotFoundError:
            raise InTheWay("it is a symbolic link to nothing") from None
    written = stat.S_ISREG(found.st_mode)
    if at is None:
        written = not stat.S_ISDIR(found.st_mode) and not stat.S_ISSOCK(found.st_mode)
    if not written:
        raise InTheWay(f"{kind(found.st_mode)} is there")
    return found


def _stream(place: str, old: os.stat_result) -> int:
    try:
        file = os.open(place, _TO_WRITE)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(old.st_mode):
            raise NoReader from None
        raise
    if os.isatty(file):
        os.close(file)
        raise InTheWay("a terminal is there; `rollbox exec ID -- cat PATH` prints a file")
    return file


def _poured(source: int, target: int) -> None:
    """Write the content of one file over another; if there is no room for it, that one is unchanged."""
    size, old = os.fstat(source).st_size, os.fstat(target).st_size
    if size > old and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(target, old, size - old)
        except OSError as error:
            os.ftruncate(target, old)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
    os.lseek(source, 0, os.SEEK_SET)
    while data := os.read(source, _PIECE_BYTES):
        while data:
            data = data[os.write(target, data) :]
    os.ftruncate(target, size)


def _dress(file: int, mode: int, modified_at_s: float | None) -> None:
    # A file of another owner keeps both: only its owner may change them.
    with suppress(PermissionError):
        os.fchmod(file, mode & 0o777)
    if modified_at_s is not None:
        with suppress(OverflowError, OSError, ValueError):
            os.utime(file, (modified_at_s, modified_at_s))
