"""What is at a path, as Docker tells it in a header: Go's file modes, in base64 of JSON. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Final

from rollbox import FileInfo

HEADER: Final = "X-Docker-Container-Path-Stat"
_KINDS: Final = {"directory": 1 << 31, "symlink": 1 << 27, "other": 1 << 19}
# Linux' bit, Go's bit: set-uid, set-gid, sticky.
_BITS: Final = ((0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20))


def header(info: FileInfo) -> str:
    """The value of the header."""
    told = {
        "name": info.path.rstrip("/").rpartition("/")[2] or "/",
        "size": info.size_bytes,
        "mode": go_mode(info),
        "mtime": datetime.fromtimestamp(info.modified_at_ms / 1000, UTC).isoformat().replace("+00:00", "Z"),
        "linkTarget": info.link_target or "",
    }
    return b64encode(json.dumps(told).encode()).decode()


def go_mode(info: FileInfo) -> int:
    """Kind and mode of a file in Go's numbers."""
    mode = _KINDS.get(info.kind, 0) | info.mode & 0o777
    return mode | sum(theirs for ours, theirs in _BITS if info.mode & ours)
