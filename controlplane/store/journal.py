"""An append-only file of JSON lines, bounded, that forgives a crash in the middle of a line."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import structlog

# A tombstone is 1 KiB as a rule, 30 KiB with all the labels that are allowed; guess: a day of one end a second.
MAX_BYTES: Final = 64 << 20


class Journal:
    """One file, 0600. Reads and writes are plain calls in the loop: the file is local, a line takes 20 us.

    Nothing is synced: it has to outlive this process, and the machine's reboot ends all sandboxes anyway.

    Args:
        path: the file; its directory exists.
        max_bytes: beyond it the older half is dropped.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._log = structlog.get_logger("journal")

    def read(self) -> Iterator[dict[str, Any]]:
        """What is on file, oldest first; damaged lines are left out."""
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
        """Adds an entry; one that cannot be written is lost, and the log says so: what it tells of has happened."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                # The break comes first as well: what a full disk cut off must not take this line with it.
                file.write(b"\n" + _line(entry))
                size_bytes = file.tell()
            if size_bytes > self._max_bytes:
                self._halve()
        except OSError as error:
            self._log.error("not journalled", path=str(self._path), detail=str(error))

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
