"""What was annotated on a sandbox, one small file each: containers cannot be relabelled once they exist.

Reads and writes are plain calls in the loop: the state directory is on a local, normally in-memory file system, and
a file is some hundred bytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path


def read(path: Path) -> dict[str, str]:
    """The facts; none when the file is missing or damaged (a damaged one proves nothing)."""
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else {}


def add(path: Path, facts: Mapping[str, str]) -> None:
    """Adds facts; a reader sees the old file or the new one."""
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps({**read(path), **facts}))
    fresh.replace(path)
