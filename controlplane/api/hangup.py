"""Cancels a request's work when the caller disconnects while it waits."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from controlplane.errors import Problem

T = TypeVar("T")


async def unless_gone(
    request: Request,
    work: Coroutine[Any, Any, T],
    give_up: Callable[[], Awaitable[None]],
    *,
    from_s: float = 0.0,
) -> T:
    """Runs ``work`` and returns its result; if the caller hangs up first, cancels it and runs ``give_up`` instead.

    Args:
        request: the caller's request; its body must have been read already.
        work: cancelled when the caller hangs up.
        give_up: undoes what ``work`` has done; also run when this call itself is cancelled.
        from_s: seconds before the connection is watched: work that is done by then is answered without a check whether
            the caller is still connected.

    Raises:
        Problem: create_abandoned, when the caller has hung up.
    """
    watch = _Watch(request, from_s)
    try:
        done = await work
        if not await watch.ended():
            return done
    except asyncio.CancelledError:
        try:
            gone = await watch.ended()
        finally:
            await give_up()
        if not gone or watch.cancelled:
            raise
        raise _hung_up_first() from None
    except Exception:
        # Work that has failed leaves nothing to undo.
        await watch.ended()
        raise
    await give_up()
    raise _hung_up_first()


def _hung_up_first() -> Problem:
    return Problem("create_abandoned", "the caller hung up before the sandbox was ready")


class _Watch:
    """Cancels the asyncio task that created it when the caller of the request hangs up."""

    def __init__(self, request: Request, from_s: float) -> None:
        self._request = request
        self._worker = asyncio.current_task()
        self._gone = False
        self._looking: asyncio.Task[None] | None = None
        self._begin: asyncio.TimerHandle | None = None
        if from_s:
            self._begin = asyncio.get_running_loop().call_later(from_s, self._check)
        else:
            self._check()

    async def ended(self) -> bool:
        """Ends the watch and says whether the caller has hung up. Safe to cancel and to repeat."""
        if self._begin is not None:
            self._begin.cancel()
        if self._looking is None:
            return self._gone
        looking, self._looking = self._looking, None
        try:
            # One turn of the event loop: if the work never awaited, the watch has not run yet, and a caller that hung
            # up before the work began would be missed.
            await asyncio.sleep(0)
        finally:
            looking.cancel()
            if self._gone and self._worker is not None:
                self._worker.uncancel()
        await asyncio.wait([looking])
        self._gone = self._gone or not looking.cancelled()
        return self._gone

    @property
    def cancelled(self) -> bool:
        """Whether the task was also cancelled by something other than this watch."""
        return self._worker is not None and self._worker.cancelling() > 0

    def _check(self) -> None:
        self._looking = asyncio.create_task(_hung_up(self._request), name="hang-up")
        self._looking.add_done_callback(self._seen)

    def _seen(self, looking: asyncio.Task[None]) -> None:
        # Not after the watch has ended: the task is doing something else then and must not be cancelled.
        if self._looking is looking and self._worker is not None and not looking.cancelled():
            self._gone = True
            self._worker.cancel("the caller hung up")


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
