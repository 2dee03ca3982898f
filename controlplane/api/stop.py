"""Turns SIGTERM and SIGINT into an event to wait for."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signal() -> Iterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets; the second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def first() -> None:
        stop.set()
        for one in SIGNALS:
            loop.remove_signal_handler(one)
            # Not Python's own SIGINT handler, which would raise KeyboardInterrupt anywhere and print a traceback.
            signal.signal(one, signal.SIG_DFL)

    for one in SIGNALS:
        loop.add_signal_handler(one, first)
    try:
        yield stop
    finally:
        for one in SIGNALS:
            loop.remove_signal_handler(one)
