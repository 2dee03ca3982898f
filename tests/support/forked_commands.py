"""Runs command lines of `rollbox`, each in a fork of one interpreter, on standard streams of a kind.

As a program it reads JSON, [[KIND, ENVIRONMENT, WORDS], ...], and answers [[exit code, stdout, stderr], ...]. What a
command imports late is imported once for all forks: a command takes a few hundredths of a second.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rollbox.cli import main as rollbox
from rollbox.cli.app import _COMMANDS
from tests.support.eventually import LIMIT_S

FULL, CLOSED, NO_READER = "/dev/full", "closed", "no reader"
# By kind: what some of the standard streams are; the others are /dev/null and two files, or terminals of columns.
KINDS: dict[str, dict[int, str]] = {
    "as they are": {},
    "stdout full": {1: FULL},
    "stdout closed": {1: CLOSED},
    "stdout without a reader": {1: NO_READER},
    "stderr full, stdin closed": {0: CLOSED, 2: FULL},
    "stderr without a reader": {2: NO_READER},
    "both without a reader": {1: NO_READER, 2: NO_READER},
    "all closed": {0: CLOSED, 1: CLOSED, 2: CLOSED},
}
TERMINALS = {"terminal of 40": 40, "terminal of 60": 60}
_NAMES = {0: ("stdin", "r"), 1: ("stdout", "w"), 2: ("stderr", "w")}
_ROWS = 1000
# What commands import when they run.
_LATE = (
    "rollbox.client",
    "rollbox.cli.streaming",
    "controlplane.cluster.kubernetes.doctor.probe",
    "rich.live",
    "rich.progress",
    "difflib",
    "textwrap",
)
# The interpreter's, of what could not be written at its end.
_UNFLUSHED = 120

Asked = tuple[str, dict[str, str], list[str]]
Ran = tuple[int, str, str]


def forked(asked: Sequence[Asked]) -> list[Ran]:
    """Run command lines in turn, each of a kind and with an environment; their exit codes and what they wrote."""
    ended = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=5 * LIMIT_S,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr
    return [(code, stdout, stderr) for code, stdout, stderr in json.loads(ended.stdout)]


def _put(number: int, target: int | str) -> None:
    """Give a standard stream another target, as a shell does before the interpreter begins."""
    name, mode = _NAMES[number]
    setattr(sys, name, None)
    if target == CLOSED:
        os.close(number)
        return
    if target == NO_READER:
        reader, target = os.pipe()
        os.close(reader)
    opened = target if isinstance(target, int) else os.open(target, os.O_RDWR)
    os.dup2(opened, number)
    os.close(opened)
    setattr(sys, name, os.fdopen(number, mode, buffering=1 if number == 2 else -1, closefd=False))


def _begin(kind: str, environment: dict[str, str], line: list[str], written: list[int]) -> None:
    os.environ.update(environment)
    # Else it is the width of any terminal.
    os.environ.pop("COLUMNS", None)
    sys.argv = ["rollbox", *line]
    # Else usage errors name this module as the program.
    sys.modules["__main__"].__package__ = None
    targets: dict[int, int | str] = {0: "/dev/null", 1: written[0], 2: written[1], **KINDS.get(kind, {})}
    for number in written:
        if number not in targets.values():
            os.close(number)
    for number in sorted(targets, key=lambda one: targets[one] == CLOSED):
        _put(number, targets[number])


def _opened(kind: str) -> tuple[int, int]:
    """Open what one stream is written to: where it is read, and where it is written."""
    if kind not in TERMINALS:
        with tempfile.TemporaryFile() as opened:
            return os.dup(opened.fileno()), os.dup(opened.fileno())
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, TERMINALS[kind], 0, 0))
    return reader, writer


def _read(reader: int, *, terminal: bool) -> str:
    with os.fdopen(reader, "rb", buffering=0) as opened:
        if not terminal:
            opened.seek(0)
            return opened.read().decode(errors="replace")
        pieces = [b""]
        try:
            while piece := opened.read(2**16):
                pieces.append(piece)
        except OSError:
            # A terminal that no program has any more.
            pass
        return b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")


def _warm() -> None:
    for name in (*_LATE, *(f"rollbox.cli.{place.partition(':')[0]}" for place in _COMMANDS.values())):
        importlib.import_module(name)
    # It waits between its first two looks.
    sys.modules["rollbox.cli.top"]._FIRST_LOOK_S = 0.0  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()


def _ended(program: Callable[[], object]) -> int:
    """Run a program to its end as the interpreter does, without freeing what goes with the process anyway."""
    code = 0
    try:
        program()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for name, _ in _NAMES.values():
        if (stream := getattr(sys, name)) is not None and stream.writable():
            try:
                stream.flush()
            except (OSError, ValueError) as error:
                print(f"Exception ignored: {error!r}", file=sys.stderr)
                code = _UNFLUSHED
    return int(code)


def _waited(child: int) -> int:
    """Wait for a child; one that goes on for ever ends with a code of its own, which names its command."""
    ending = os.pidfd_open(child)
    if not select.select([ending], [], [], LIMIT_S / 4)[0]:
        signal.pidfd_send_signal(ending, signal.SIGKILL)
    os.close(ending)
    return os.waitpid(child, 0)[1]


def main() -> None:
    """Answer the request on stdin; a child goes on with its command line."""
    _warm()
    ended = []
    for kind, environment, line in json.load(sys.stdin):
        streams = [_opened(kind) for _ in range(2)]
        child = os.fork()
        if not child:
            for reader, _ in streams:
                os.close(reader)
            _begin(kind, environment, line, [writer for _, writer in streams])
            os._exit(_ended(rollbox))
        for _, writer in streams:
            os.close(writer)
        status = _waited(child)
        # A terminal keeps more than any of these writes.
        said = [_read(reader, terminal=kind in TERMINALS) for reader, _ in streams]
        ended.append([os.waitstatus_to_exitcode(status), *said])
    print(json.dumps(ended))


if __name__ == "__main__":
    main()
