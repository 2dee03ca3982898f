"""The cluster's processes: detached children that outlive the command which started them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.layout import LOGS, STATE
from tests.cluster.toolchain import environment

RECORDS = STATE / "processes"
STOP_TIMEOUT_S = 15.0
# They are meant to outlive this process; a Popen that is collected before would complain.
_children: list[subprocess.Popen[bytes]] = []


class NotReadyError(Exception):
    """A part of the cluster did not become ready; the text says which log to read."""


@dataclass(frozen=True)
class Program:
    """One process of the cluster.

    Attributes:
        name: what the command line and the log file call it.
        command: program and arguments.
        ready: whether it does its work now, seen from outside.
        hint: what to look at when it does not become ready.
        deadline: seconds within which it must.
        extra: additions to its environment.
    """

    name: str
    command: tuple[str, ...]
    ready: Callable[[], bool]
    hint: str = ""
    deadline: float = 60.0
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def born(pid: int) -> str | None:
    """Start time of a living process: with the pid it names one process for as long as the machine runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def running(name: str) -> int | None:
    """Pid of the process if it is the one that was started here."""
    try:
        record = json.loads((RECORDS / f"{name}.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    # One that ended before its birth was noted has none, now as then.
    return int(record["pid"]) if record["born"] and born(record["pid"]) == record["born"] else None


def start(program: Program) -> None:
    """Start it, unless it runs."""
    if running(program.name):
        return
    RECORDS.mkdir(parents=True, exist_ok=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    _raise_file_limit()
    with program.log.open("ab") as log:
        child = subprocess.Popen(
            program.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=environment(**program.extra),
        )
    _children.append(child)
    (RECORDS / f"{program.name}.json").write_text(json.dumps({"pid": child.pid, "born": born(child.pid)}))


def wait_ready(program: Program) -> None:
    """Wait until it does its work."""
    began = time.monotonic()
    while not program.ready():
        if running(program.name) is None:
            raise NotReadyError(_why(program, "ended"))
        if time.monotonic() - began > program.deadline:
            raise NotReadyError(_why(program, f"is not ready after {program.deadline:.0f} s"))
        time.sleep(0.1)


def stop(name: str, number: signal.Signals = signal.SIGTERM) -> None:
    """End it, in the end by force, and wait until it is gone."""
    pid = running(name)
    if pid:
        os.kill(pid, number)
        if not _gone(name, STOP_TIMEOUT_S):
            os.kill(pid, signal.SIGKILL)
            _gone(name, STOP_TIMEOUT_S)
    # Those that were started here and have ended are nobody's children any more.
    _children[:] = [child for child in _children if child.poll() is None]
    (RECORDS / f"{name}.json").unlink(missing_ok=True)


def _gone(name: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while running(name):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _raise_file_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _why(program: Program, what: str) -> str:
    tail = "\n".join(program.log.read_text(errors="replace").splitlines()[-20:])
    hint = f"\n{program.hint}" if program.hint else ""
    return f"{tail}\n\n{program.name} {what}. Above: the end of {program.log}.{hint}"
