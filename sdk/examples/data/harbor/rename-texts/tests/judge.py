"""Judges what is in /app, from outside of it: what the solver wrote is data here, or runs in a process of its own."""

import sys
from pathlib import Path


def passes() -> bool:
    """The task."""
    return sorted(one.name for one in Path("/app/notes").iterdir()) == ["a.txt", "b.txt", "c.md"]


sys.exit(not passes())
