"""A real Redis of one's own: on a unix socket, in memory, gone at the end."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UP_WITHIN_S = 10.0


def available() -> bool:
    """Whether this machine has a Redis server to start."""
    return shutil.which("redis-server") is not None


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The URL of a Redis that runs while the block does; it is empty."""
    path = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    with subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL) as server:
        try:
            until_s = time.monotonic() + UP_WITHIN_S
            while not path.exists():
                if server.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError("redis-server did not start")
                time.sleep(0.02)
            yield f"unix://{path}"
        finally:
            server.kill()
