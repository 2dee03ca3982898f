"""The same names without `await`, for programs that are not asynchronous.

    from rollbox.sync import Sandbox

    with Sandbox.create("python:3.12-slim") as sandbox:
        print(sandbox.exec("echo hello").stdout)

A thin face: the asynchronous code runs on one event loop in one background thread, whatever the number of sandboxes.
Safe to call from many threads. In asynchronous programs use `rollbox` itself: a call from here blocks the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, TypeVar, Unpack

import rollbox
from rollbox.errors import InvalidArgument
from rollbox.record import DeleteReport, SandboxList, SandboxRecord
from rollbox.request import CreateOptions, ExecOptions
from rollbox.result import ExecResult
from rollbox.retry import RetryPolicy

__all__ = ["Client", "Sandbox", "shutdown"]

_T = TypeVar("_T")
# A call that Ctrl-C ends still tells the server, which takes 2 s at most.
_FAREWELL_LIMIT_S = 5.0


class _Portal:
    """One event loop in one thread, and the way into it."""

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
            ended.wait(_FAREWELL_LIMIT_S)
            raise

    def stop(self) -> None:
        """End the loop, which closes what is still open on it, and the thread."""
        if self._loop is not None and self.pid == os.getpid():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_FAREWELL_LIMIT_S)


class _Door:
    """The portal of this process, opened by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: _Portal | None = None

    def portal(self) -> _Portal:
        with self._lock:
            # A forked child has the object but not the thread.
            if self._portal is None or self._portal.pid != os.getpid():
                self._portal = _Portal()
            return self._portal

    def close(self) -> None:
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            portal.stop()


_door = _Door()


def _run(call: Coroutine[Any, Any, _T]) -> _T:
    return _door.portal().run(call)


@atexit.register
def shutdown() -> None:
    """Stop the background thread and close its connections; the next call starts it again. Runs at exit by itself."""
    _door.close()


class Client:
    """As `rollbox.Client`; a context manager."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, retries: RetryPolicy | None = None
    ) -> None:
        """As `rollbox.Client`."""
        self.inner = rollbox.Client(url, api_key, retries=retries)

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self.inner.url

    def create(self, image: str, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `rollbox.Sandbox.create`."""
        return Sandbox.create(image, client=self, **options)

    def connect(self, sandbox_id: str) -> Sandbox:
        """As `rollbox.Sandbox.connect`."""
        return Sandbox.connect(sandbox_id, client=self)

    def get(self, sandbox_id: str) -> SandboxRecord:
        """As `rollbox.Client.get`."""
        return _run(self.inner.get(sandbox_id))

    def list(self, labels: Mapping[str, str] | None = None, *, all: bool = False) -> SandboxList:  # noqa: A002
        """As `rollbox.Client.list`."""
        return _run(self.inner.list(labels, all=all))

    def delete(self, *sandbox_ids: str, labels: Mapping[str, str] | None = None) -> DeleteReport:
        """As `rollbox.Client.delete`."""
        return _run(self.inner.delete(*sandbox_ids, labels=labels))

    def info(self) -> dict[str, Any]:
        """As `rollbox.Client.info`."""
        return _run(self.inner.info())

    def close(self) -> None:
        """Close all connections. Idempotent."""
        _run(self.inner.aclose())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sandbox:
    """As `rollbox.Sandbox`; a context manager that deletes at the end unless `detach()` was called."""

    def __init__(self, inner: rollbox.Sandbox) -> None:
        """Use `create` or `connect` instead."""
        self.inner = inner

    @classmethod
    def create(cls, image: str, *, client: Client | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """As `rollbox.Sandbox.create`."""
        return cls(_run(rollbox.Sandbox.create(image, client=None if client is None else client.inner, **options)))

    @classmethod
    def connect(cls, sandbox_id: str, *, client: Client | None = None) -> Sandbox:
        """As `rollbox.Sandbox.connect`."""
        return cls(_run(rollbox.Sandbox.connect(sandbox_id, client=None if client is None else client.inner)))

    @staticmethod
    def list(
        labels: Mapping[str, str] | None = None,
        *,
        all: bool = False,  # noqa: A002
        client: Client | None = None,
    ) -> SandboxList:
        """As `rollbox.Sandbox.list`."""
        return _run(rollbox.Sandbox.list(labels, all=all, client=None if client is None else client.inner))

    def exec(self, cmd: str | Sequence[str], **options: Unpack[ExecOptions]) -> ExecResult:
        """As `rollbox.Sandbox.exec`; Ctrl-C kills the command on the server."""
        return _run(self.inner.exec(cmd, **options))

    def extend(self, ttl: float) -> SandboxRecord:
        """As `rollbox.Sandbox.extend`."""
        return _run(self.inner.extend(ttl))

    def detach(self) -> str:
        """As `rollbox.Sandbox.detach`."""
        return self.inner.detach()

    def delete(self) -> None:
        """As `rollbox.Sandbox.delete`."""
        _run(self.inner.delete())

    @property
    def id(self) -> str:
        """Its id, never reused."""
        return self.inner.id

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.inner.labels

    @property
    def record(self) -> SandboxRecord:
        """As `rollbox.Sandbox.record`."""
        return self.inner.record

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run(self.inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self.inner)
