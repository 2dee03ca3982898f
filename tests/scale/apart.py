"""A simulation's own network and processes: nothing of it is seen outside, and all of it ends with its first process.

So its API server, etcd and Redis have the ports that they have anywhere, beside a test cluster of this machine, and
every address of 10.96.0.0/11 and 10.128.0.0/9 is this machine: pods, nodes and Services have addresses as in a cluster.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

INSIDE = "ROLLBOX_SCALE_INSIDE"
DEVICE = "rollbox0"
# The node address of the API server; everything else is an address of the two ranges.
OWN = "10.95.0.1/24"
LOCAL = ("10.96.0.0/11", "10.128.0.0/9")


def enter(module: str, words: list[str], state: Path) -> None:
    """Go on in namespaces of one's own; returns only inside.

    Args:
        module: what runs inside, as for `python -m`.
        words: its arguments.
        state: the folder of the simulated cluster's state.

    Raises:
        SystemExit: this user may not make namespaces.
    """
    if os.environ.get(INSIDE):
        _lay_out()
        return
    if os.geteuid() != 0:
        raise SystemExit("A simulated cluster needs root, for a network namespace of its own.")
    # The test cluster's modules read it when they are imported: this cluster has another folder than that one.
    environ = {**os.environ, INSIDE: "1", "XDG_STATE_HOME": str(state)}
    apart = ("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
    os.execvpe("unshare", [*apart, sys.executable, "-m", module, *words], environ)


def _lay_out() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _ip("link", "set", "lo", "up")
    _ip("link", "add", DEVICE, "type", "bridge")
    _ip("address", "add", OWN, "dev", DEVICE)
    _ip("link", "set", DEVICE, "up")
    _ip("route", "add", "default", "dev", DEVICE)
    for addresses in LOCAL:
        _ip("route", "add", "local", addresses, "dev", "lo")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
