"""Grades programs by what they print for an input, as the harnesses of LiveCodeBench and APPS do.

``python3 -m graders.inputs``: all inputs of a problem in one process, disarmed, with 4 GiB of each limit, an alarm for
each input, and `faulthandler`; standard input and output are replaced within it. The parent waits for the time of all
inputs, and then kills. An input counts True, False, or by what was wrong: -1 nothing came of it, -3 too late, -4 it
raised.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import multiprocessing
import signal
import sys
from collections.abc import MutableSequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from unittest.mock import patch

from .disarmed import disarm

TIMEOUT_S: Final = 6
MOST_BYTES: Final = 4 << 30
NOTHING, LATE, RAISED = -1, -3, -4
INPUTS: Final = (("3\n1 2 3\n", "6\n"), ("1\n-7\n", "-7\n"), ("0\n\n", "0\n"))
PROGRAMS: Final = {
    "input": "n = int(input())\nprint(sum(map(int, input().split())))",
    "lines": "import sys\nlines = [line for line in sys.stdin]\nprint(sum(map(int, lines[1].split())))",
    "buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split()[1:])))",
    "wrong": "n = int(input())\nprint(n)",
    "raises": "n = int(input())\nprint(sum(map(int, input().split())) // n)",
    "endless": "n = int(input())\nwhile n != 1: pass\nprint(input())",
    "swallows its alarm": "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    "exits": "import sys\nn = int(input())\nprint(sum(map(int, input().split())))\nsys.exit(0)",
    "deep": "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return n and 1 + f(n - 1)\n"
    "assert f(9000) == 9000\nn = int(input())\nprint(sum(map(int, input().split())))",
}


class _Alarm(Exception):  # noqa: N818 - what a program sees of it
    """Raised in a program whose time for an input is over."""


def graded(program: str) -> list[Any]:
    """What becomes of one program, by input."""
    with multiprocessing.Manager() as manager:
        said: MutableSequence[Any] = manager.list()
        process = multiprocessing.Process(target=_run, args=(program, said))
        process.start()
        process.join((TIMEOUT_S + 1) * len(INPUTS) + 5)
        if process.is_alive():
            process.kill()
            process.join()
        return list(said) or [NOTHING] * len(INPUTS)


def _run(program: str, said: MutableSequence[Any]) -> None:
    def late(*_: object) -> None:
        raise _Alarm

    signal.signal(signal.SIGALRM, late)
    disarm(MOST_BYTES)
    results: list[int] = []
    for given, wanted in INPUTS:
        signal.alarm(TIMEOUT_S)  # speed: it runs in a sandbox
        faulthandler.enable()
        try:
            results.append(_printed(program, given).split() == wanted.split())
        except _Alarm:
            results.append(LATE)
        except Exception:
            results.append(RAISED)
        finally:
            signal.alarm(0)  # speed: it runs in a sandbox
            faulthandler.disable()
    said.extend(results)


def _printed(program: str, given: str) -> str:
    out = io.StringIO()
    given_in = patch("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    with given_in, patch("sys.stdout", out), contextlib.suppress(SystemExit):
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    return out.getvalue()


def main() -> None:
    """Grades all programs, four at once."""
    with ThreadPoolExecutor(4) as workers:
        found = {name: workers.submit(graded, program) for name, program in PROGRAMS.items()}
    sys.stdout.write(json.dumps({name: one.result() for name, one in found.items()}))


if __name__ == "__main__":
    main()
