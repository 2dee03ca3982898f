"""What a sandbox can see of gVisor's platform: how its system calls get to gVisor. The standard library alone."""

import os
import time
from pathlib import Path
from typing import Final

# gVisor's systrap puts a table of jumps here, once it has rewritten the system calls of a program that repeats them.
TABLE: Final = "[usertrap]"
ROUNDS: Final = 20
CALLS: Final = 1_000


def seen() -> dict[str, object]:
    """``systrap``: whether it is surely that; ``call_ns``: what a system call takes, of the quickest of some rounds.

    Cost: 20,000 system calls.
    """
    quickest = min(_round_ns() for _ in range(ROUNDS))
    return {"systrap": TABLE in Path("/proc/self/maps").read_text(), "call_ns": quickest // CALLS}


def _round_ns() -> int:
    began = time.perf_counter_ns()
    for _ in range(CALLS):
        os.getppid()
    return time.perf_counter_ns() - began
