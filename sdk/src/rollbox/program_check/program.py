"""What runs in the sandbox, as root: prints what programs may do there. The standard library alone.

Its text is given to `python3 -c`, of any version from 3.8 on; so it imports nothing of rollbox.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# Any but root.
PERSON = 1000
ATTACH, DETACH = 16, 17
# Of waitpid: children of others too, which the tracer may wait for.
WALL = 0x40000000
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def main() -> None:
    """Tries all."""
    told = {"setuid": _setuid(), "attach": _attach(), "scope": _read(SCOPE), "kernel": _read(Path("/proc/version"))}
    status = _read(Path("/proc/self/status"))
    sys.stdout.write(json.dumps({**told, "no_new_privs": "NoNewPrivs:\t1" in status}))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _setuid() -> str:
    """The effective user of a person's program that is root's and has the bit, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "python3"
        Path(folder).chmod(0o755)
        shutil.copyfile(Path(sys.executable).resolve(), program)
        program.chmod(0o4755)
        ran = subprocess.run(
            [program, "-S", "-c", "import os; print(os.geteuid())"],
            env={"PYTHONHOME": sys.base_prefix},
            cwd="/",
            preexec_fn=lambda: os.setresuid(PERSON, PERSON, PERSON),
            capture_output=True,
            text=True,
            check=False,
        )
    return ran.stdout.strip() or f"exit code {ran.returncode}: {ran.stderr.strip()[-80:]}"


def _attach() -> int:
    """The error of attaching to a process that is no descendant; 0: it worked."""
    waits = os.fork()
    if waits == 0:
        signal.pause()
    attaches = os.fork()
    if attaches == 0:
        os._exit(_traced(waits))
    error = os.waitpid(attaches, 0)[1] >> 8
    os.kill(waits, signal.SIGKILL)
    os.waitpid(waits, 0)
    return error


def _traced(pid: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ATTACH, pid, None, None) != 0:
        return ctypes.get_errno()
    # It goes on before its tracer ends: in gVisor the end of one process hangs up its group while another one stands.
    os.waitpid(pid, WALL)
    libc.ptrace(DETACH, pid, None, None)
    return 0


if __name__ == "__main__":
    main()
