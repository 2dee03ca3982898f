"""What everybody in a soak writes down: what was asked for, what was answered, what ran. One line of JSON each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; what a field does not say is its default.

    Attributes:
        at_s: on the machine's monotonic clock, which all processes share.
        what: `create.asked`, `create.answered`, `create.failed`, `create.cancelled`, the same of `exec` and `delete`;
            `cluster.start`, `cluster.stop`, `cluster.ran`, `cluster.died`; `store.emptied`; `blow.NAME`;
            `client.started`; `judge.looked`.
        op: ties an answer to what was asked for.
        key: of the create: the caller's, or the op itself where the caller brought none.
        id: of the sandbox.
        nonce: of the command: tells one call of a user from all others.
        label: the sandbox has, or the delete asks for.
        code: of an error.
        ttl_s: that the create asks for.
        leased: whether the sandbox goes with its client.
    """

    at_s: float
    what: str
    op: str = ""
    owner: str = ""
    key: str = ""
    id: str = ""
    nonce: str = ""
    label: str = ""
    code: str = ""
    ttl_s: float = 0.0
    leased: bool = False


class Log:
    """The log of one process. Every line is one write, so a kill takes none of what was told before it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, what: str, **fields: str | float | bool) -> None:
        """Write one event down, now."""
        line = json.dumps({"at_s": time.monotonic(), "what": what, **fields}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(folder: Path) -> list[Event]:
    """All events of all logs (`*.events`) in a folder, in the order in which they happened."""
    return sorted(_lines(folder), key=lambda event: event.at_s)


def _lines(folder: Path) -> Iterator[Event]:
    for path in sorted(folder.glob("*.events")):
        for line in path.read_text().splitlines():
            yield Event(**json.loads(line))
