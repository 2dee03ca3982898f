"""Judges what is in /app, from outside of it: what the solver wrote is data here, or runs in a process of its own."""

import sys
from pathlib import Path


def passes() -> bool:
    """The task."""
    mode = Path("/app/run.sh").stat().st_mode
    return bool(mode & 0o100) and not mode & 0o022


sys.exit(not passes())
