"""The local target of a download: a temporary file beside it, renamed when it is complete."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from rollbox.errors import InvalidArgument


class AtomicFile:
    """A local file that gets its name only when it is complete."""

    def __init__(self, local: Path, name: str) -> None:
        """Open a temporary file for the target `local`, or for `name` in it when it is a directory."""
        self._target = local / name if local.is_dir() else local
        try:
            self._file, self._temporary = tempfile.mkstemp(prefix=".rollbox-", dir=self._target.parent)
        except OSError as error:
            raise InvalidArgument(f"no file can be created in {self._target.parent}: {error.strerror}") from error

    def write(self, data: bytes) -> None:
        """Write all of the data."""
        while data:
            data = data[os.write(self._file, data) :]

    def commit(self, mode: int) -> None:
        """Rename the file to its target, with the permissions of `mode`."""
        os.fchmod(self._file, mode & 0o777)
        Path(self._temporary).replace(self._target)

    def close(self) -> None:
        """Close the file, and remove it unless it was renamed."""
        os.close(self._file)
        with suppress(FileNotFoundError):
            Path(self._temporary).unlink()


def directory(local: Path) -> Path:
    """Return the path of a local directory.

    Raises:
        InvalidArgument: it is not a directory.
    """
    if not local.is_dir():
        raise InvalidArgument(f"{local} is not a directory", hint="Use upload (`rollbox cp`) for a single file.")
    return local
