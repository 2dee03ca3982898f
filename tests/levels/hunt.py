"""Runs one test many times beside a compiler's load, and says how often it failed: the way to a flaky test's cause.

    python -m tests.levels.hunt [--times N] [--quiet] tests/unit/sdk/test_batch.py::test_name
    python -m tests.levels.hunt [--times N] [--quiet] 'gateway/exec name::of::test'      (of Rust)

What failing runs said is in build/hunt.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.levels.steps import Command, pytest_command
from tests.levels.table import ON_CLUSTER

ROOT = Path(__file__).parent.parent.parent
SAID = ROOT / "build" / "hunt"
# Takes a core and memory as a compiler does: it compiles, without end.
COMPILER = """
source = "x = [%s]" % ", ".join(f"(lambda n: n + {n})" for n in range(3000))
while True:
    compile(source, "x", "exec")
"""
LIMIT_S = 900.0


@contextlib.contextmanager
def compilers(count: int) -> Iterator[None]:
    """That many of them run beside the block."""
    running = [subprocess.Popen([sys.executable, "-I", "-S", "-c", COMPILER]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def command_of(test: str) -> tuple[Command, dict[str, str]]:
    """What runs this test, and the environment of its level."""
    if test.startswith("tests/"):
        return (*pytest_command(), test), dict(ON_CLUSTER) if test.startswith("tests/e2e") else {}
    binary, _, name = test.partition(" ")
    return (sys.executable, "-m", "tests.levels.rust", "--only", binary, name), {}


def hunt(test: str, times: int) -> int:
    """How often it failed."""
    SAID.mkdir(parents=True, exist_ok=True)
    failures = 0
    for number in range(1, times + 1):
        failed, said = _run(test)
        log = SAID / f"{number}.log"
        if failed:
            failures += 1
            log.write_bytes(said)
        print(f"{number:>4} of {times}: {f'FAILED, {log}' if failed else 'passed'}", flush=True)
    return failures


def _run(test: str) -> tuple[bool, bytes]:
    """Whether it failed, and what it said."""
    command, environ = command_of(test)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as still:
        return True, (still.stdout or b"") + f"\nstood still for {LIMIT_S:.0f} s\n".encode()
    return done.returncode != 0, done.stdout + done.stderr


def main(arguments: list[str]) -> int:
    """Hunt; the exit status is 1 when the test failed at all."""
    parser = argparse.ArgumentParser(prog="python -m tests.levels.hunt", description=__doc__)
    parser.add_argument("test")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--quiet", action="store_true", help="without the load")
    options = parser.parse_args(arguments)
    with compilers(0 if options.quiet else os.cpu_count() or 1):
        failures = hunt(options.test, options.times)
    print(f"{options.test}: failed {failures} of {options.times}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
