"""Ctrl-C while a host's call waits for its command."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rollbox.sync import Sandbox

STARTED = "/tmp/started"


@contextmanager
def interrupted(sandbox: Sandbox) -> Iterator[None]:
    """Interrupts the block once its command has made the file `STARTED`; that the block ends with it is asserted.

    Raises:
        SandboxError: whether the file is there could not be asked. The block is interrupted all the same, since it
            would wait for its command otherwise.
    """

    def interrupt() -> None:
        try:
            while not sandbox.files.exists(STARTED):
                time.sleep(0.05)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield
        watching.result()
