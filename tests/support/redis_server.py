"""A real Redis of one's own: in memory, gone at the end."""

import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.stack import free_port

UP_WITHIN_S = 30.0


@contextmanager
def redis_server(folder: Path, address: str = "") -> Iterator[str]:
    """The URL of a Redis that runs while the block does; it is empty.

    Args:
        folder: where its socket is.
        address: of this machine, where it listens as well, with a password; then the URL is this one's.

    Raises:
        RuntimeError: there is none to start, or it did not start. Nothing is skipped for want of it.
    """
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not on PATH: `make setup` installs what the tests need")
    path = folder / "redis.sock"
    port, password = (free_port(address), secrets.token_hex(16)) if address else (0, "")
    options = ["--unixsocket", str(path), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    listen = ["--bind", address, "--requirepass", password] if address else []
    command = ["redis-server", "--port", str(port), *options, *listen]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            until_s = time.monotonic() + UP_WITHIN_S
            while not _answers(path):
                if server.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError("redis-server did not start")
                time.sleep(0.02)
            yield f"redis://:{password}@{address}:{port}/0" if address else f"unix://{path}"
        finally:
            server.kill()


def _answers(path: Path) -> bool:
    """Whether somebody listens there: the file comes a moment before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
