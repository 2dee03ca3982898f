"""Judges what is in /app, from outside of it: what the solver wrote is data here, or runs in a process of its own."""

import subprocess
import sys


def run(code: str) -> str:
    """What code prints that may import what is in /app: in a process of its own and as nobody, so it writes nothing."""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd="/app", user=65534, timeout=20, capture_output=True, text=True, check=False
    )
    return ran.stdout.strip()


def passes() -> bool:
    """The task."""
    return run("import middle; print(middle.middle([3, 1, 2]), middle.middle([5, 9, 1, 7, 8]))") == "2 7"


sys.exit(not passes())
