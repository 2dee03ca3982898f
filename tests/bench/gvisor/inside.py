"""Runs in a sandbox, with the standard library alone: does one work there, and prints how many milliseconds it took.

python3 inside.py NAME     one of `WORKS`; what it needs is made before, and is not timed
"""

import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path("/srv/work")
LOOP = "i=0; while [ $i -lt {times} ]; do {command}; i=$((i + 1)); done"
TESTS = "import pytest\n\n@pytest.mark.parametrize('n', range(2000))\ndef test_of_nothing(n):\n    assert n >= 0\n"
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'
Work = Callable[[], Iterator[None]]


def programs() -> Iterator[None]:
    yield
    subprocess.run(["/bin/sh", "-c", LOOP.format(times=50, command="/bin/true")], check=True)


def pythons() -> Iterator[None]:
    yield
    subprocess.run(["/bin/sh", "-c", LOOP.format(times=10, command="python3 -c pass")], check=True)


def forks() -> Iterator[None]:
    yield
    for _ in range(100):
        if not (pid := os.fork()):
            os._exit(0)
        os.waitpid(pid, 0)


def threads() -> Iterator[None]:
    yield
    for _ in range(500):
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


def system_calls() -> Iterator[None]:
    yield
    for _ in range(100_000):
        os.getppid()


def arithmetic() -> Iterator[None]:
    yield
    total = 0
    for number in range(5_000_000):
        total += number * number


def files(count: int) -> list[Path]:
    """Names in folders of a hundred."""
    for number in range(count // 100):
        (FOLDER / "tree" / str(number)).mkdir(parents=True, exist_ok=True)
    return [FOLDER / "tree" / str(number // 100) / str(number) for number in range(count)]


def written(count: int) -> list[Path]:
    """Files of some hundred bytes."""
    paths = files(count)
    for path in paths:
        path.write_bytes(str(path).encode() * 8)
    return paths


def created() -> Iterator[None]:
    paths = files(2000)
    yield
    for path in paths:
        path.write_bytes(b"some bytes")


def statistics() -> Iterator[None]:
    paths = written(2000)
    yield
    for path in paths:
        path.stat()


def read() -> Iterator[None]:
    paths = written(2000)
    yield
    for path in paths:
        path.read_bytes()


def unpacked() -> Iterator[None]:
    written(10_000)
    with tarfile.open(FOLDER / "all.tar", "w") as tar:
        tar.add(FOLDER / "tree", "tree")
    (FOLDER / "there").mkdir()
    yield
    subprocess.run(["tar", "-xf", FOLDER / "all.tar", "-C", FOLDER / "there"], check=True)


def git(*arguments: str) -> None:
    subprocess.run(["git", "-C", FOLDER / "tree", *arguments], check=True, stdout=subprocess.DEVNULL)


def added() -> Iterator[None]:
    written(10_000)
    git("init", "--quiet")
    yield
    git("add", "--all")


def status() -> Iterator[None]:
    written(10_000)
    git("init", "--quiet")
    git("add", "--all")
    yield
    git("status", "--short")


def tests() -> Iterator[None]:
    (FOLDER / "test_nothing.py").write_text(TESTS)
    yield
    subprocess.run(
        ["python3", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "test_nothing.py"],
        cwd=FOLDER,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def compiled() -> Iterator[None]:
    (FOLDER / "hello.c").write_text(HELLO)
    yield
    subprocess.run(["cc", "-O2", "-o", "hello", "hello.c"], cwd=FOLDER, check=True)


WORKS: dict[str, Work] = {
    "arithmetic in Python, 5,000,000 rounds": arithmetic,
    "start of python3, 10 times": pythons,
    "start of /bin/true, 50 times": programs,
    "fork and exit, 100 times": forks,
    "threads started, 500": threads,
    "system calls (getppid from Python), 100,000": system_calls,
    "pytest of 2,000 tests of nothing": tests,
    "cc of one file": compiled,
    "2,000 files created": created,
    "stat of 2,000 files": statistics,
    "2,000 files read": read,
    "tar -x of 10,000 files": unpacked,
    "git add of 10,000 files": added,
    "git status of 10,000 files": status,
}


@contextmanager
def folder() -> Iterator[None]:
    """An empty one, removed at the end."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(FOLDER)


def milliseconds(work: Work) -> float:
    """How long its part after the preparation takes."""
    with folder():
        steps = work()
        next(steps)
        began = time.monotonic()
        next(steps, None)
        return (time.monotonic() - began) * 1000


if __name__ == "__main__":
    print(milliseconds(WORKS[sys.argv[1]]))
