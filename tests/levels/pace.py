"""How fast this machine is now, against the one that the budgets were written for.

A budget is seconds of one kind of machine, quiet. A slower machine, or a compiler beside the tests, stretches every
level alike, and that is no level's fault: so the same piece of work is timed on every core at once, before and after a
level, and the budget is stretched by what it takes longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

# Measured on a quiet machine of two cores.
REFERENCE_S = 0.20
WORK = "n = 0\nfor k in range(2_000_000): n = (n * 31 + k) % 1_000_003"


def pace() -> float:
    """How many times as long as on the reference machine a piece of work takes now; 1 at least."""
    began = time.monotonic()
    # A core each, so that what others run beside it is felt whichever core they are on.
    working = [subprocess.Popen([sys.executable, "-I", "-S", "-c", WORK]) for _ in range(os.cpu_count() or 1)]
    for process in working:
        process.wait()
    return max(1.0, (time.monotonic() - began) / REFERENCE_S)
