"""The background thread whose event loop runs all calls without `await`."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from rollbox.errors import InvalidArgument

_T = TypeVar("_T")
# A call that Ctrl-C cancels still sends its cleanup request, which takes 2 s at most.
_CLEANUP_LIMIT_S = 5.0


class _LoopThread:
    """One event loop in one thread, which runs coroutines for other threads."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), name="rollbox-sync", daemon=True)
        self._thread.start()
        self._started.wait()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._stop.wait()

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop; a KeyboardInterrupt here cancels it there and waits for its end."""
        if threading.current_thread() is self._thread or self._loop is None:
            call.close()
            raise InvalidArgument("rollbox.sync is called from its own event loop", hint="Use rollbox itself there.")
        ended = threading.Event()

        async def watched() -> _T:
            try:
                return await call
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, SystemExit, CancelledError):
            future.cancel()
            ended.wait(_CLEANUP_LIMIT_S)
            raise

    def stop(self) -> None:
        """End the loop, which closes what is still open on it, and the thread."""
        if self._loop is not None and self.pid == os.getpid():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_CLEANUP_LIMIT_S)


class _SharedLoopThread:
    """The loop thread of this process, started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: _LoopThread | None = None

    def current(self) -> _LoopThread:
        with self._lock:
            # A forked child has the object but not the thread.
            if self._started is None or self._started.pid != os.getpid():
                self._started = _LoopThread()
            return self._started

    def close(self) -> None:
        with self._lock:
            started, self._started = self._started, None
        if started is not None:
            started.stop()


_shared = _SharedLoopThread()


def run(call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the loop in the background and return what it returns; Ctrl-C cancels it there."""
    return _shared.current().run(call)


def iterate(source: AsyncIterator[_T]) -> Iterator[_T]:
    """Iterate over an asynchronous iterator on the background loop; leaving the iteration closes it there too."""
    try:
        while True:
            yield run(_next(source))
    except StopAsyncIteration:
        return
    finally:
        if isinstance(source, AsyncGenerator):
            run(_closed(source))


async def _next(source: AsyncIterator[_T]) -> _T:
    return await anext(source)


async def _closed(source: AsyncGenerator[Any, None]) -> None:
    await source.aclose()


@atexit.register
def shutdown() -> None:
    """Stop the background thread and close its connections; the next call starts it again. Runs at exit by itself."""
    _shared.close()
