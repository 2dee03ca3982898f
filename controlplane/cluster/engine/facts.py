"""The annotated facts of sandboxes, in one small file each, since the labels of a container cannot be changed.

Reads and writes block the event loop, which is acceptable: the state directory is on a local, normally in-memory file
system, and a file has some hundred bytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path


def read(path: Path) -> dict[str, str]:
    """The facts; empty if the file is missing or damaged."""
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else {}


def add(path: Path, facts: Mapping[str, str]) -> None:
    """Adds facts; the file is replaced atomically, so a reader sees the old content or the new one."""
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps({**read(path), **facts}))
    fresh.replace(path)
