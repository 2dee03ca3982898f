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
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        found = os.fstat(self._fd)
        # A device or a pipe may have no end, and be read for ever.
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
        self._size = found.st_size
        # A process that ended in the middle of a line has left it without an end.
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._size += os.write(self._fd, b"\n")

    def write(self, line: str) -> None:
        """See ``AuditOutput.write``. Survives the end of the process, not that of the machine."""
        if self._size >= self._most_bytes:
            os.close(self._fd)
            self._path.replace(self._before)
            self._open()
        self._size += os.write(self._fd, line.encode() + b"\n")

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
