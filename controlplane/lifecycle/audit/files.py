"""Where audit entries are appended, a line each: a file with a limit, or the process's stdout."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

MODE: Final = 0o600


class AuditOutput(Protocol):
    """Takes the lines of audit entries."""

    def write(self, line: str) -> None:
        """Appends a line.

        Raises:
            OSError: it is not written.
        """
        ...


class AuditFile:
    """An append-only file; one that is full is kept as FILE.1, in the place of the one before.

    Args:
        path: its folder is there.
        most_bytes: of both together.

    Raises:
        OSError: it cannot be opened, or is no file of its own (a link, a device).
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._before = path, path.with_name(f"{path.name}.1")
        self._most_bytes = most_bytes // 2
        self._fd, self._size = self._opened()

    def _opened(self) -> tuple[int, int]:
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        found = os.fstat(fd)
        # A device or a pipe may have no end, and be read for ever.
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
        # A process that ended in the middle of a line has left it without an end.
        self._cut = found.st_size > 0 and os.pread(fd, 1, found.st_size - 1) != b"\n"
        return fd, found.st_size

    def write(self, line: str) -> None:
        """See ``AuditOutput.write``. Survives the end of the process, not that of the machine."""
        if self._size >= self._most_bytes:
            self._turn()
        data = f"{line}\n".encode()
        # On a full disk a line may be cut off: the next one is a line of its own all the same.
        whole = b"\n" + data if self._cut else data
        written = os.write(self._fd, whole)
        self._size += written
        self._cut = written < len(whole)
        if self._cut:
            raise OSError(errno.ENOSPC, "a line is cut off", str(self._path))

    def _turn(self) -> None:
        """Begins another file; where that fails, the one that is open stays."""
        self._path.replace(self._before)
        full = self._fd
        self._fd, self._size = self._opened()
        os.close(full)

    def close(self) -> None:
        """Closes it."""
        os.close(self._fd)

    def lines(self) -> Iterator[str]:
        """All that are kept, oldest first.

        Raises:
            OSError: they cannot be read.
        """
        for path in (self._before, self._path):
            if path.is_file() and not path.is_symlink():
                with path.open(encoding="utf-8", errors="replace") as file:
                    yield from file


class AuditStdout:
    """The process's stdout, which a cluster's log collector reads."""

    def write(self, line: str) -> None:
        """See ``AuditOutput.write``."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
