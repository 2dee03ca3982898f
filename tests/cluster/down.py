"""Takes the cluster down, and says what of it is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster import baseline, leftovers, undo
from tests.cluster.layout import RUN, STATE
from tests.cluster.processes import RECORDS, say, stop

KILL_TIMEOUT_S = 60.0
SETTLE_TIMEOUT_S = 10.0


def down() -> int:
    """End every process, undo what they did to the machine, remove the files; 0 when nothing is left."""
    began = time.monotonic()
    if not STATE.exists() and not leftovers.found():
        say("cluster: it is not up")
        return 0
    steps = (_stop_programs, _kill_containers, _unmount, undo.remove_network, undo.remove_cgroups)
    for step in (*steps, baseline.restore_sysctls, _remove_folders):
        _timed(step)
    # The kernel lets go of programs, links and groups behind the calls that end them.
    until_s = time.monotonic() + SETTLE_TIMEOUT_S
    while (left := leftovers.found()) and time.monotonic() < until_s:
        time.sleep(0.5)
        undo.remove_cgroups()
    for line in left:
        say(f"left: {line}")
    if not left:
        shutil.rmtree(STATE, ignore_errors=True)
    say(f"cluster: down after {time.monotonic() - began:.0f} s" + (f", {len(left)} things left" if left else ""))
    return 1 if left else 0


def _timed(step: Callable[[], None]) -> None:
    began = time.monotonic()
    step()
    if time.monotonic() - began > 2:
        say(f"  {step.__name__.strip('_').replace('_', ' ')}: {time.monotonic() - began:.0f} s")


def _stop_programs() -> None:
    """The kubelet first, lest it starts pods again; those that nothing depends on need no grace."""
    names = [path.stem for path in RECORDS.glob("*.json")]
    order = ["kubelet", "cilium-operator", "cilium-agent"]
    for name in sorted(names, key=lambda n: order.index(n) if n in order else len(order)):
        stop(name, signal.SIGTERM if name in {"cilium-agent", "kube-proxy"} else signal.SIGKILL)


def _kill_containers() -> None:
    """Containers and shims have no other parent now, so they are found by what they hold."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while pids := leftovers.processes():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)


def _unmount() -> None:
    """The deepest first; what is still held is let go of when its holder ends."""
    for where in sorted(leftovers.mounts(), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", where], check=False, capture_output=True)


def _remove_folders() -> None:
    """All of ours but the notes and logs, which go last; of others' names only those that were not there before."""
    shutil.rmtree(RUN, ignore_errors=True)
    for folder in baseline.new_folders():
        shutil.rmtree(folder, ignore_errors=True)
    for path in STATE.iterdir() if STATE.exists() else []:
        if path.name not in {"logs", "baseline.json"}:
            shutil.rmtree(path) if path.is_dir() else Path(path).unlink()
