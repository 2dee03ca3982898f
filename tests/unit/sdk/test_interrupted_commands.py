"""Ctrl-C and SIGTERM while a command waits: its exit code, no traceback, and nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import LIMIT_S, eventually_true
from tests.support.gateway_fake import FakeGateway
from tests.unit.sdk.test_cli import UNHURRIED, made

# By command: the method and a part of the address of the request that it waits for, or goes on asking.
WAITS = {
    "create python": ("POST", "/v1/sandboxes"),
    "exec ID -- hold": ("GET", "/attach"),
    "logs ID --follow": ("GET", "/execs"),
    "cp FOLDER/big ID:/big": ("PUT", "/file"),
    "watch ID:/": ("GET", "/watch"),
    "image prefetch stuck": ("POST", "/prefetch"),
}


def left(fake: FakeGateway, inside: Path) -> dict[str, object]:
    """What may be left behind: sandboxes beside the first, commands that run, files."""
    running = [one for one in fake.processes.execs.values() if one.result is None]
    others = [name for name, box in fake.sandboxes.items() if name != "sb-1" and box["state"] != "ended"]
    return {"sandboxes": others, "commands": running, "files": sorted(inside.iterdir())}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("line", WAITS)
def test_a_signal_ends_a_command_that_waits_and_leaves_nothing(
    apart: FakeGateway, tmp_path: Path, line: str, number: signal.Signals, code: int
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "big").write_bytes(bytes(100_000))
    sandbox_id = made(apart)
    apart.requests.clear()
    apart.hold_creates = apart.files.hold_writes = True
    apart.files.root, apart.images.stuck = inside, {"stuck"}
    words = [word.replace("ID", sandbox_id).replace("FOLDER", str(tmp_path)) for word in line.split()]
    command, pipe = [sys.executable, "-c", UNHURRIED, *words], subprocess.PIPE
    with subprocess.Popen(command, env=dict(os.environ), stdout=pipe, stderr=pipe, text=True) as process:
        eventually_true(lambda: apart.count(*WAITS[line]) or process.poll() is not None)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, "interrupted while" in stderr, "Traceback" in stderr) == (code, True, False), stderr
    assert left(apart, inside) == {"sandboxes": [], "commands": [], "files": []}
