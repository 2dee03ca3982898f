"""Where a download lands: beside its place, then in it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from rollbox.errors import InvalidArgument


class Landing:
    """A local file that takes its place only when it is whole."""

    def __init__(self, local: Path, name: str) -> None:
        """Open a new file beside `local`, or in it under `name` when it is a directory."""
        self._place = local / name if local.is_dir() else local
        try:
            self._file, self._made = tempfile.mkstemp(prefix=".rollbox-", dir=self._place.parent)
        except OSError as error:
            raise InvalidArgument(f"nothing can be written in {self._place.parent}: {error.strerror}") from error

    def write(self, data: bytes) -> None:
        """Write all of it."""
        while data:
            data = data[os.write(self._file, data) :]

    def land(self, mode: int) -> None:
        """Take the place, with the mode's permissions."""
        os.fchmod(self._file, mode & 0o777)
        Path(self._made).replace(self._place)

    def close(self) -> None:
        """Close, and remove what did not land."""
        os.close(self._file)
        with suppress(FileNotFoundError):
            Path(self._made).unlink()


def directory(local: Path) -> Path:
    """Return it; InvalidArgument when it is no directory."""
    if not local.is_dir():
        raise InvalidArgument(f"{local} is not a directory", hint="Use upload (`rollbox cp`) for a single file.")
    return local
