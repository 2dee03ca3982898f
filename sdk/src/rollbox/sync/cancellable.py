"""Threads of plain functions, whose calls of the platform can be cancelled as those of a task can."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

_T = TypeVar("_T")
_of_thread = threading.local()


class Ended(NamedTuple, Generic[_T]):
    """What a function returned, or what it raised."""

    value: _T | None
    error: BaseException | None


class CancellableCalls:
    """The calls of one thread. `cancel` ends the one under way, else the next, once: those after it clean up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Future[Any] | None = None
        self._pending = False
        self.cancelled = False

    @classmethod
    def current(cls) -> CancellableCalls | None:
        """Those of the calling thread; None: nobody cancels its calls."""
        return getattr(_of_thread, "calls", None)

    def cancel(self) -> None:
        """Called on the loop. The cancelled call raises `asyncio.CancelledError` in its thread."""
        self.cancelled = True
        with self._lock:
            call = self._under_way
            self._pending = call is None
        if call is not None:
            # Behind the first step of its task, which would otherwise never begin and never say that it has ended.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._end, call)

    def _end(self, call: Future[Any]) -> None:
        if not call.cancel():
            with self._lock:
                self._pending = True

    def begin(self, call: Callable[[], Future[_T]]) -> Future[_T] | None:
        """Begin one call; None: it is the one that `cancel` was about, so it is not to be made."""
        with self._lock:
            pending, self._pending = self._pending, False
            if pending:
                return None
            self._under_way = begun = call()
            return begun

    def over(self) -> None:
        """The call under way has ended."""
        with self._lock:
            self._under_way = None

    def started(self, work: Callable[[], _T], name: str) -> asyncio.Future[Ended[_T]]:
        """Run a function in a thread of its own, which ends with the interpreter; called on the loop.

        Returns:
            its end; it has no exception, and awaiting it may be cancelled without an effect on the thread.
        """
        loop = asyncio.get_running_loop()
        end: asyncio.Future[Ended[_T]] = loop.create_future()

        def tell(ended: Ended[_T]) -> None:
            if not end.done():
                end.set_result(ended)

        def run() -> None:
            _of_thread.calls = self
            try:
                ended = Ended(work(), None)
            except BaseException as error:
                ended = Ended(None, error)
            # It has been closed meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, ended)

        threading.Thread(target=run, name=name, daemon=True).start()
        return end
