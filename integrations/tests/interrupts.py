"""Ctrl-C while a host's call waits for its command."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rollbox.sync import Sandbox

STARTED = "/tmp/started"


@contextmanager
def interrupted(sandbox: Sandbox) -> Iterator[None]:
    """Interrupts the block once its command has made the file `STARTED`; that the block ends with it is asserted."""

    def interrupt() -> None:
        while not sandbox.files.exists(STARTED):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    watching = threading.Thread(target=interrupt)
    watching.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    watching.join()
