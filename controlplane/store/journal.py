"""An append-only file of JSON lines, bounded, that tolerates a crash in the middle of a line."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import structlog

# A tombstone is 1 KiB as a rule, 30 KiB with all the labels that are allowed; guess: a day of one end a second.
MAX_BYTES: Final = 64 << 20


class Journal:
    """One file with mode 0600. Reads and writes block the event loop: the file is local, and a line takes 20 us.

    Nothing is synced: the file has to survive this process only, since a reboot of the machine ends all sandboxes.

    Args:
        path: the file; its directory exists.
        max_bytes: when the file is larger, its older half is dropped.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._log = structlog.get_logger("journal")

    def read(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first, without damaged lines."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in content.split(b"\n"):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry

    def append(self, entry: dict[str, Any]) -> None:
        """Adds an entry; if that fails it is logged and not raised, since the end itself has happened."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                # A line break comes first as well: an entry that a full disk cut off must not damage this one.
                file.write(b"\n" + _line(entry))
                size_bytes = file.tell()
            if size_bytes > self._max_bytes:
                self._halve()
        except OSError as error:
            self._log.error("journal entry lost, the file cannot be written", path=str(self._path), detail=str(error))

    def rewrite(self, entries: Iterator[dict[str, Any]]) -> None:
        """Replaces the content; a reader sees the old file or the new one.

        Raises:
            OSError: it cannot be written.
        """
        self._replace(b"".join(_line(entry) for entry in entries))

    def _halve(self) -> None:
        content = self._path.read_bytes()[-self._max_bytes // 2 :]
        self._replace(content[content.find(b"\n") + 1 :])

    def _replace(self, content: bytes) -> None:
        fresh = self._path.with_name(f".{self._path.name}.fresh")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(self._path)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
