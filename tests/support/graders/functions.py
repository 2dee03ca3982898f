"""Grades functions with their assertions, as HumanEval's harness and its descendants do.

``python3 -m graders.functions MEBIBYTES``: each program runs in a process of its own, disarmed, within limits of memory
and a timer; the process is killed a second after its time. Four at once.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, MutableSequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from .disarmed import disarm, rearm

TIMEOUT_S: Final = 6.0
WORKERS: Final = 4
PROGRAMS: Final = {
    "right": "def add(a, b):\n    return a + b\nassert add(2, 3) == 5",
    "wrong": "def add(a, b):\n    return a - b\nassert add(2, 3) == 5",
    "raises": "1 / 0",
    "no syntax": "def add(a, b:\n    return a",
    "endless": "while True: pass",
    "asleep": "import time\ntime.sleep(1000)",
    "swallows its timer": "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    "reads": "input()",
    "exits": "raise SystemExit(0)",
    "exits at once": "import os\nos._exit(0)",
    "too large": "held = bytearray(2 << 30)",
    "too deep": "def f(n): return f(n + 1)\nf(0)",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "starts programs": "import subprocess\nsubprocess.Popen(['true'])",
    "removes files": "import shutil\nshutil.rmtree('/')",
    "limits itself": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "threads": "import threading\nt = [threading.Thread(target=print, args=('x',)) for _ in range(8)]\n"
    "for one in t: one.start()\nfor one in t: one.join()",
    "prints much": "for n in range(200000): print(n)",
}


class _TooLate(Exception):  # noqa: N818 - what a program sees of it
    """Raised in a program whose time is over."""


class _WriteOnly(io.StringIO):
    """Standard input that has none."""

    def read(self, *_: object) -> str:
        raise OSError

    def readline(self, *_: object) -> str:  # type: ignore[override]
        raise OSError


def verdict(program: str, most_bytes: int) -> str:
    """What becomes of one program."""
    with multiprocessing.Manager() as manager:
        said: MutableSequence[str] = manager.list()
        process = multiprocessing.Process(target=_run, args=(program, most_bytes, said))
        process.start()
        process.join(TIMEOUT_S + 1)
        if process.is_alive():
            process.kill()
            process.join()
        return said[0] if said else "timed out"


def _run(program: str, most_bytes: int, said: MutableSequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path.cwd()
        os.chdir(folder)
        taken = disarm(most_bytes)
        try:
            with _swallowed(), _timer():
                exec(program, {})
            said.append("passed")
        except _TooLate:
            said.append("timed out")
        except BaseException as error:
            said.append(f"failed: {type(error).__name__}")
        rearm(taken)
        os.chdir(home)


@contextlib.contextmanager
def _timer() -> Iterator[None]:
    def late(*_: object) -> None:
        raise _TooLate

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)  # speed: it runs in a sandbox
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # speed: it runs in a sandbox


@contextlib.contextmanager
def _swallowed() -> Iterator[None]:
    stream, before = _WriteOnly(), sys.stdin
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        sys.stdin = stream
        try:
            yield
        finally:
            sys.stdin = before


def main(arguments: list[str]) -> None:
    """Grades all programs."""
    most_bytes = int(arguments[0]) << 20
    with ThreadPoolExecutor(WORKERS) as workers:
        graded = {name: workers.submit(verdict, program, most_bytes) for name, program in PROGRAMS.items()}
    sys.stdout.write(json.dumps({name: one.result() for name, one in graded.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
