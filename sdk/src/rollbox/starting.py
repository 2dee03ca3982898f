"""Files, ports and processes of a sandbox that may not have started: their first call starts it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar, cast

from rollbox.reading import Reading

_T = TypeVar("_T")


def starting(kind: type[_T], opened: Callable[[], Awaitable[_T]]) -> _T:
    """Return an object with the methods of `kind`, each of which awaits `opened` and calls the same method of that.

    Args:
        kind: a class whose public methods are asynchronous, or return a `Reading`.
        opened: starts what is needed.
    """
    made = object.__new__(_lazy(cast("Any", kind)))
    made._opened = opened
    return cast("_T", made)


@functools.cache
def _lazy(kind: type[Any]) -> type[Any]:
    methods = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    return type(f"Lazy{kind.__name__}", (kind,), {name: _after(member) for name, member in methods.items()})


def _after(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def called(self: Any, *args: object, **options: object) -> Any:  # noqa: ANN401
            return await method(await self._opened(), *args, **options)

        return called

    @functools.wraps(method)
    def read(self: Any, *args: object, **options: object) -> Reading[Any]:  # noqa: ANN401
        async def items() -> AsyncGenerator[Any, None]:
            source = method(await self._opened(), *args, **options)
            try:
                async for item in source:
                    yield item
            finally:
                await source.aclose()

        return Reading(items())

    return read
