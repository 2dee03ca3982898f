"""An iteration that a cancelled step does not end, unlike one of an asynchronous generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

_T = TypeVar("_T")


class _End(NamedTuple):
    """Comes after the last item."""

    error: Exception | None


class Reading(Generic[_T]):
    """Iterates over what arrives. A step that was cancelled, as by `asyncio.timeout`, loses nothing: the next goes on.

    The end is said again by each later step. Close it with `contextlib.aclosing`; what is left open ends with its loop.
    A task of its own reads one item ahead.
    """

    def __init__(self, source: AsyncGenerator[_T, None]) -> None:
        """Take the generator, which nobody else may use."""
        self._source = source
        self._came: asyncio.Queue[_T | _End] = asyncio.Queue(1)
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def __aiter__(self) -> Reading[_T]:
        return self

    async def __anext__(self) -> _T:
        if self._over:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.create_task(_pass_on(self._source, self._came), name="rollbox reading")
        item = await self._came.get()
        if not isinstance(item, _End):
            return item
        self._over = True
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration, and what it holds open. Idempotent."""
        self._over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._source.aclose()

    def __del__(self) -> None:
        # The loop is closed where the program ends, or in another thread where garbage is collected in that.
        if self._task is not None and not self._task.done():
            with suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)


async def _pass_on(source: AsyncGenerator[_T, None], came: asyncio.Queue[_T | _End]) -> None:
    """Pass items on until the end; not a method, so that nothing but its user holds the iteration."""
    error: Exception | None = None
    try:
        async for item in source:
            await came.put(item)
    except Exception as failure:
        error = failure
    finally:
        await source.aclose()
    await came.put(_End(error))
