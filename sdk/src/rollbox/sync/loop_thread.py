"""The background thread whose event loop runs all calls without `await`."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from rollbox._problem import SandboxError
from rollbox.errors import InvalidArgument
from rollbox.process.streams import limited
from rollbox.sync.cancellable import CancellableCalls

_T = TypeVar("_T")
Undo: TypeAlias = Callable[[_T], Coroutine[Any, Any, object]]
# A call that Ctrl-C cancels still sends its cleanup request, which takes 2 s at most.
_CLEANUP_LIMIT_S = 5.0


class _LoopThread:
    """One event loop in one thread, which runs coroutines for other threads."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._served, name="rollbox-sync", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise _over() from error
        self._started.wait()

    def _served(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._stop.wait()

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop; a KeyboardInterrupt here cancels it there and waits for its end."""
        if threading.current_thread() is self._thread or self._loop is None:
            call.close()
            raise InvalidArgument("rollbox.sync is called from its own event loop", hint="Use rollbox itself there.")
        ended, given_up = threading.Event(), threading.Event()
        tasks: list[asyncio.Task[Any] | None] = []

        async def watched() -> _T:
            tasks.append(asyncio.current_task())
            try:
                if given_up.is_set():
                    raise asyncio.CancelledError
                return await call
            finally:
                call.close()
                ended.set()

        def cancel() -> None:
            for task in filter(None, tasks):
                task.cancel()

        loop = self._loop
        calls = CancellableCalls.current()
        if calls is None:
            try:
                return asyncio.run_coroutine_threadsafe(watched(), loop).result()
            except (KeyboardInterrupt, SystemExit, CancelledError):
                # It may come before this thread has the future, so the loop itself looks for what to cancel.
                given_up.set()
                loop.call_soon_threadsafe(cancel)
                ended.wait(_CLEANUP_LIMIT_S)
                raise
        future = calls.begin(lambda: asyncio.run_coroutine_threadsafe(watched(), loop))
        if future is None:
            call.close()
            raise asyncio.CancelledError
        try:
            return _result(future, ended)
        except CancelledError as error:
            # As in a task, so that no `except Exception` of a rollout takes it for a failure.
            raise asyncio.CancelledError from error
        finally:
            calls.over()

    async def awaited(self, call: Coroutine[Any, Any, _T], undo: Undo[_T] | None) -> _T:
        """Await on another loop a coroutine that runs on this one; see `on_background_loop`."""
        if (loop := self._loop) is None:
            call.close()
            raise _over()
        tasks: list[asyncio.Task[Any] | None] = []

        async def watched() -> _T:
            tasks.append(asyncio.current_task())
            return await call

        async def over() -> None:
            # Behind the cancellation, which the loop has taken before; one that came first has begun nothing.
            for task in filter(None, tasks):
                await asyncio.wait([task])
                if undo is not None and not task.cancelled() and task.exception() is None:
                    await undo(task.result())
            call.close()

        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(watched(), loop))
        except asyncio.CancelledError:
            # In a thread, for which `asyncio.run` waits even where it cancels this once more.
            await asyncio.to_thread(_ended, over(), loop)
            raise

    def leave(self, call: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the loop without waiting for it."""
        try:
            if self._loop is not None:
                asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:
            # It has been closed meanwhile, and what was open on it too.
            call.close()

    def stop(self) -> None:
        """End the loop, which closes what is still open on it, and the thread."""
        if self._loop is not None and self.pid == os.getpid():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_CLEANUP_LIMIT_S)


def _ended(over: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """Wait for an end on a loop, within the limit; a loop that is closed has ended all of its tasks."""
    try:
        future = asyncio.run_coroutine_threadsafe(over, loop)
    except RuntimeError:
        over.close()
        return
    with suppress(TimeoutError, CancelledError, SandboxError):
        future.result(_CLEANUP_LIMIT_S)


def _result(future: Future[_T], ended: threading.Event) -> _T:
    try:
        return future.result()
    except (KeyboardInterrupt, SystemExit, CancelledError):
        future.cancel()
        ended.wait(_CLEANUP_LIMIT_S)
        raise


class _SharedLoopThread:
    """The loop thread of this process, started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: _LoopThread | None = None

    def current(self) -> _LoopThread:
        with self._lock:
            # The thread has stopped with the interpreter, which starts no other one.
            if sys.is_finalizing():
                raise _over()
            # A forked child has the object but not the thread.
            if self._started is None or self._started.pid != os.getpid():
                self._started = _LoopThread()
            return self._started

    def running(self) -> _LoopThread | None:
        """The thread of this process, if it runs."""
        here = self._started is not None and self._started.pid == os.getpid() and not sys.is_finalizing()
        return self._started if here else None

    def close(self) -> None:
        with self._lock:
            started, self._started = self._started, None
        if started is not None:
            started.stop()


_shared = _SharedLoopThread()


def run(call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the loop in the background and return what it returns; Ctrl-C cancels it there.

    Raises:
        InvalidArgument: the interpreter ends, and runs no threads any more.
    """
    try:
        shared = _shared.current()
    except BaseException:
        call.close()
        raise
    return shared.run(call)


async def on_background_loop(call: Coroutine[Any, Any, _T], undo: Undo[_T] | None = None) -> _T:
    """Await a coroutine that runs on the loop in the background: what it makes outlives the loop that awaits it.

    For programs that run a loop of their own for each call (`asyncio.run`), since a sandbox works only on the loop on
    which it was made.

    Args:
        call: what is awaited.
        undo: gets what it has returned where its caller was cancelled just then; for what would be left behind.

    Raises:
        InvalidArgument: the interpreter ends, and runs no threads any more.
    Cancel safety: a cancellation reaches the coroutine, whose end is waited for, 5 s at most: a program that ends then
        leaves nothing behind.
    """
    try:
        shared = _shared.current()
    except BaseException:
        call.close()
        raise
    return await shared.awaited(call, undo)


async def awaited(one: Awaitable[_T]) -> _T:
    """Await what is no coroutine, which alone a loop runs."""
    return await one


@runtime_checkable
class _Closable(Protocol):
    def aclose(self) -> Coroutine[Any, Any, None]: ...


class Iteration(Generic[_T]):
    """Iterates over an asynchronous iterator on the background loop. Ctrl-C or a limit ends a step, not the iteration.

    As a context manager it closes the iterator there at the end. One that is dropped is closed behind the program's
    back, and one that is left over at the interpreter's end is left alone: its loop has closed it.
    """

    def __init__(self, source: AsyncIterator[_T]) -> None:
        self._source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        return self.next()

    def next(self, *, timeout: float | None = None) -> _T:
        """Return the next item.

        Args:
            timeout: seconds to wait; None: without limit.

        Raises:
            StopIteration: at the end, and at each later step.
            TimeoutError: none came in time; nothing is lost.
        """
        if found := run(self._step(timeout)):
            return found[0]
        raise StopIteration

    async def _step(self, timeout: float | None) -> tuple[_T, ...]:  # noqa: ASYNC109
        try:
            async with limited(timeout):
                return (await anext(self._source),)
        except StopAsyncIteration:
            return ()

    def close(self) -> None:
        """Close the iterator. Idempotent."""
        if isinstance(self._source, _Closable):
            run(self._source.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        shared = _shared.running()
        if shared is not None and isinstance(self._source, _Closable):
            shared.leave(self._source.aclose())


def _over() -> InvalidArgument:
    hint = "Call it before: in a `with`, or from a function that `atexit` has."
    return InvalidArgument(
        "rollbox.sync is called while the interpreter ends, which runs no threads any more", hint=hint
    )


@atexit.register
def close() -> None:
    """As `rollbox.aclose`; also stops the background thread, which the next call starts again. Runs at exit, too."""
    _shared.close()
