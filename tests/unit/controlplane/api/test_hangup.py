"""Work for a caller who may hang up: answered, or cancelled and undone, and nobody else disturbed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from controlplane.api.hangup import unless_gone
from controlplane.errors import Problem


class Call:
    """A request whose caller hangs up when told to; counts how often the work was undone."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.undone = 0
        self.request = Request({"type": "http"}, self._receive)

    async def run(self, work: Coroutine[Any, Any, str], from_s: float = 0.0) -> str:
        return await unless_gone(self.request, work, self._give_up, from_s=from_s)

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _give_up(self) -> None:
        self.undone += 1


async def after(delay_s: float, then: Callable[[], None] = lambda: None) -> str:
    await asyncio.sleep(delay_s)
    then()
    return "done"


async def at_once() -> str:
    return "done"


@pytest.mark.parametrize("from_s", [0.0, 0.05])
async def test_who_stays_gets_the_result(from_s: float) -> None:
    call = Call()
    assert await call.run(at_once(), from_s) == "done"
    assert await call.run(after(1), from_s) == "done"
    assert call.undone == 0


@pytest.mark.parametrize("from_s", [0.0, 0.05])
async def test_who_hangs_up_ends_the_work_and_it_is_undone(from_s: float) -> None:
    call, finished = Call(), list[str]()
    asyncio.get_running_loop().call_later(1, call.gone.set)
    with pytest.raises(Problem, match="hung up"):
        await call.run(after(2, lambda: finished.append("yes")), from_s)
    await asyncio.sleep(5)
    assert (call.undone, finished) == (1, [])


async def test_what_is_ready_at_once_is_ready_for_nobody() -> None:
    call = Call()
    call.gone.set()
    with pytest.raises(Problem, match="hung up"):
        await call.run(at_once())
    assert call.undone == 1


async def test_nobody_looks_before_it_is_time() -> None:
    call = Call()
    call.gone.set()
    assert await call.run(after(0.01), 0.05) == "done"
    with pytest.raises(Problem, match="hung up"):
        await call.run(after(1), 0.05)
    assert call.undone == 1


async def test_a_failure_is_told_and_has_nothing_to_give_up() -> None:
    async def failing() -> str:
        await asyncio.sleep(1)
        raise Problem("conflict", "no")

    call = Call()
    with pytest.raises(Problem, match="no"):
        await call.run(failing())
    assert call.undone == 0


async def test_a_cancelled_call_is_undone_and_stays_cancelled() -> None:
    call = Call()
    running = asyncio.create_task(call.run(after(9)))
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert call.undone == 1


async def test_a_hang_up_that_comes_after_the_end_disturbs_nobody() -> None:
    call = Call()
    assert await call.run(after(1)) == "done"
    call.gone.set()
    assert await after(5) == "done"
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_what_goes_on_after_a_hang_up_can_be_cancelled_as_ever() -> None:
    call = Call()
    asyncio.get_running_loop().call_later(1, call.gone.set)

    async def going_on() -> None:
        async with asyncio.timeout(10):
            with pytest.raises(Problem):
                await call.run(after(5))
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await going_on()
