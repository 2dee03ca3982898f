"""Judges programs as a programming contest does: as another user, within limits of the kernel, and by how they end.

``python3 -m graders.judged``: each program is a process of `nobody` with limits of processor seconds, processes,
memory, stack and sizes of files, and is killed when its time by the clock is over.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

NOBODY: Final = 65534
# By the clock: most have as long as a busy machine takes for their processor seconds.
WALL_S: Final = 60
SHORT: Final = {"asleep": 8}
PROCESSES: Final = 24
MIB: Final = 1 << 20
LIMITS: Final = {
    resource.RLIMIT_CPU: (3, 5),
    resource.RLIMIT_NPROC: (PROCESSES, PROCESSES),
    resource.RLIMIT_AS: (512 * MIB, 512 * MIB),
    resource.RLIMIT_STACK: (64 * MIB, 64 * MIB),
    resource.RLIMIT_FSIZE: (4 * MIB, 4 * MIB),
    resource.RLIMIT_NOFILE: (64, 64),
    resource.RLIMIT_CORE: (0, 0),
}
PYTHON: Final = [sys.executable, "-I", "-c"]
# A structure of 30 MiB that is passed by value lies on the stack.
DEEP: Final = """
import ctypes
class Large(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * (30 << 20))]
function = ctypes.CDLL(None).abs
function.argtypes = [Large]
function(Large())
print(6)
"""
FORKS: Final = f"""
import os, signal, sys
made = []
try:
    while len(made) < 200:
        made.append(os.fork() or signal.pause())
except BlockingIOError:
    print(6 if len(made) <= {PROCESSES} else len(made))
finally:
    for one in made: os.kill(one, 9)
"""
PROGRAMS: Final = {
    "right": [*PYTHON, "print(sum(map(int, input().split())))"],
    "wrong": [*PYTHON, "print(7)"],
    "endless": [*PYTHON, "while True: pass"],
    "asleep": ["sleep", "1000"],
    "too large": [*PYTHON, "held = bytearray(1 << 30)"],
    "too long": ["sh", "-c", "exec head -c 9000000 /dev/zero > long"],
    "too many processes": [*PYTHON, FORKS],
    "too many files": [*PYTHON, "held = [open('/dev/null') for _ in range(100)]"],
    "deep": [*PYTHON, DEEP],
    "crashes": [*PYTHON, "import ctypes; ctypes.string_at(0)"],
    "aborts": [*PYTHON, "import os; os.abort()"],
    "another status": ["sh", "-c", "exit 3"],
    "limits itself no more": [*PYTHON, "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))"],
    "kills": ["sh", "-c", "kill -9 1 $PPID; kill -9 -1; echo 6"],
    "is somebody else": [*PYTHON, "import os; print(6 if os.getresuid() == (65534,) * 3 else os.getresuid())"],
    "becomes root": [*PYTHON, "import os; os.setuid(0)"],
}


def verdict(program: list[str], folder: Path, wall_s: int) -> str:
    """How one program does, given `1 2 3` where 6 is right."""
    process = subprocess.Popen(
        program,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=_limited,  # noqa: PLW1509 - there is one thread
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(b"1 2 3\n", wall_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "too late"
    if process.returncode < 0:
        return signal.Signals(-process.returncode).name
    if process.returncode:
        return f"status {process.returncode}"
    return "right" if out.split() == [b"6"] else f"wrong: {out.decode().strip()}"


def _limited() -> None:
    for limit, values in LIMITS.items():
        resource.setrlimit(limit, values)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def main() -> None:
    """Judges all programs."""
    found = {}
    for name, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            found[name] = verdict(program, Path(folder), SHORT.get(name, WALL_S))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
