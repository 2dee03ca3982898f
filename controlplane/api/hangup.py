"""Work for a caller who may hang up while it waits."""

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
    """The result of ``work``; when the caller hangs up first (or this call is cancelled), ``give_up`` is run instead.

    Args:
        request: whose body was read before.
        work: cancelled when its result is not wanted any more.
        give_up: undoes what the work has done.
        from_s: not looked at before: what is over by then is answered, whether somebody is there or not.
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
        # A failure has nothing to give up.
        await watch.ended()
        raise
    await give_up()
    raise _hung_up_first()


def _hung_up_first() -> Problem:
    return Problem("create_abandoned", "the caller hung up before the sandbox was ready")


class _Watch:
    """Cancels the task that has made it when the caller of its request hangs up."""

    def __init__(self, request: Request, from_s: float) -> None:
        self._request = request
        self._worker = asyncio.current_task()
        self._gone = False
        self._looking: asyncio.Task[None] | None = None
        self._begin: asyncio.TimerHandle | None = None
        if from_s:
            self._begin = asyncio.get_running_loop().call_later(from_s, self._look)
        else:
            self._look()

    async def ended(self) -> bool:
        """Ends the watch; whether the caller has hung up. Cancel safe, and repeating is fine."""
        if self._begin is not None:
            self._begin.cancel()
        if self._looking is None:
            return self._gone
        looking, self._looking = self._looking, None
        try:
            # Once round: who had hung up before the work began has not been seen when it never waited.
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
        """Whether somebody else has cancelled the worker, too."""
        return self._worker is not None and self._worker.cancelling() > 0

    def _look(self) -> None:
        self._looking = asyncio.create_task(_hung_up(self._request), name="hang-up")
        self._looking.add_done_callback(self._seen)

    def _seen(self, looking: asyncio.Task[None]) -> None:
        # Not when the watch has ended: whoever goes on then is not to be disturbed.
        if self._looking is looking and self._worker is not None and not looking.cancelled():
            self._gone = True
            self._worker.cancel("the caller hung up")


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
