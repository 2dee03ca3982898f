"""A real Redis of one's own: on a unix socket, in memory, gone at the end."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UP_WITHIN_S = 10.0


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The URL of a Redis that runs while the block does; it is empty.

    Raises:
        RuntimeError: there is none to start, or it did not start. Nothing is skipped for want of it.
    """
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not on PATH: `make setup` installs what the tests need")
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
