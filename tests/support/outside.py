"""What is outside, for tests of egress: a network namespace with HTTP servers, a package index and a DNS server.

Its addresses are of the range for benchmarks (RFC 2544), which egress refuses unless it is told otherwise: `ALLOWED` is
what tests let it reach, `REFUSED` is beside it and answers too, so that a refusal is seen to be one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOST: Final = "198.18.77.1"
ALLOWED: Final = "198.18.77.2"
REFUSED: Final = "198.18.77.3"
# Of the package indexes (`tests.support.tools`), where a test has them; allowed too.
INDEXES: Final = "198.18.77.4"
DNS: Final = f"{ALLOWED}:53"
# What servers answer that no policy of the tests allows.
SECRET: Final = "this-was-never-to-be-read"
# Ports of both addresses: of ALLOWED the first one is allowed by the tests' policies, and the second one is not.
WEB: Final = 8000
OTHER: Final = 8001
# Of ALLOWED, for tests alone: which names were asked for, one a line.
ASKED: Final = 8002
# Of the machine itself, on its loopback and on HOST.
OWN: Final = 18_777
NAMES: Final = {
    "index.test": ALLOWED,
    "inside.test": REFUSED,
    "loopback.test": "127.0.0.1",
    "metadata.test": "169.254.169.254",
}
# Names with more than one address. A question is answered with the next list, round and round, at once to be forgotten.
TURNING: Final = {
    "rebind.test": ((ALLOWED,), (REFUSED,), ("127.0.0.1",), ("169.254.169.254",)),
    "mixed.test": ((REFUSED, ALLOWED), ("169.254.169.254", "127.0.0.1", REFUSED, ALLOWED)),
    "many.test": ((*[REFUSED] * 40, ALLOWED),),
}
# What egress is told, by the environment of `rollbox up`.
ENVIRON: Final = {
    "ROLLBOX_EGRESS_ALLOWED_PRIVATE_CIDRS": f"{ALLOWED}/32,{INDEXES}/32",
    "ROLLBOX_EGRESS_DNS_SERVERS": DNS,
}

_LINK: Final = Path("/sys/class/net/rbxout0")
_SERVER: Final = Path(__file__).with_name("outside_server.py")


@contextlib.contextmanager
def outside(folder: Path, *beside: str) -> Iterator[None]:
    """Runs it. Needs root. One at a time on a machine: another one waits.

    Args:
        folder: what the allowed server serves.
        beside: a command that serves there too, and prints "ready".

    Raises:
        RuntimeError: a server did not start.
    """
    with _alone(), _namespace() as holder:
        _delete_link()
        _ip("link", "add", _LINK.name, "type", "veth", "peer", "name", "rbxout1", "netns", str(holder))
        _ip("address", "add", f"{HOST}/24", "dev", _LINK.name)
        _ip("link", "set", _LINK.name, "up")
        enter = ("nsenter", "--target", str(holder), "--net")
        for one in (ALLOWED, REFUSED, INDEXES):
            _ip("address", "add", f"{one}/24", "dev", "rbxout1", enter=enter)
        for link in ("lo", "rbxout1"):
            _ip("link", "set", link, "up", enter=enter)
        _ip("route", "add", "default", "via", HOST, enter=enter)
        with contextlib.ExitStack() as servers:
            servers.enter_context(_serving(*enter, sys.executable, str(_SERVER), str(folder)))
            servers.enter_context(_serving(sys.executable, str(_SERVER)))
            servers.enter_context(_serving(*enter, *beside)) if beside else None
            yield


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / f"{_LINK.name}.lock").open("w") as lock:
        # Not inherited by what is started meanwhile, so it goes with this process.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _delete_link() -> None:
    """Deletes a link that another run has left. The kernel does so with that of an ended namespace."""
    try:
        if _LINK.exists():
            _ip("link", "delete", _LINK.name)
    except subprocess.CalledProcessError:
        if _LINK.exists():
            raise


def _ip(*words: str, enter: tuple[str, ...] = ()) -> None:
    subprocess.run((*enter, "ip", *words), check=True)


@contextlib.contextmanager
def _namespace() -> Iterator[int]:
    """A process that does nothing, in a network namespace of its own, which lives as long.

    Not `ip netns`: it makes /run/netns a mount, which stays, and belongs to pods where a cluster runs.
    """
    ours = Path("/proc/self/ns/net").readlink()
    command = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity")
    with subprocess.Popen(command) as process:
        try:
            while Path(f"/proc/{process.pid}/ns/net").readlink() == ours:
                time.sleep(0.01)
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def _serving(*command: str) -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the servers outside did not start: see above")
            yield
        finally:
            process.terminate()
