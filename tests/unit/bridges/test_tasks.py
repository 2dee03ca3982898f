"""Tasks beside a request: the first failure is raised at once, and none outlives the request."""

from __future__ import annotations

import asyncio

import pytest

from rollbox_bridges import tasks


async def _fails() -> None:
    await asyncio.sleep(0)
    raise ValueError("mine")


async def _never() -> None:
    await asyncio.Event().wait()


async def test_a_failure_is_raised_while_others_run_and_those_are_ended() -> None:
    running = [asyncio.create_task(_never()), asyncio.create_task(_fails())]
    with pytest.raises(ValueError, match="mine"):
        await tasks.finished(running)
    assert not running[0].done()
    await tasks.over(running)
    assert running[0].cancelled()


async def test_a_failure_that_came_before_is_raised_too() -> None:
    failed = asyncio.create_task(_fails())
    await asyncio.wait([failed])
    with pytest.raises(ValueError, match="mine"):
        await tasks.finished([failed])


async def test_none_is_logged_whose_failure_nobody_asks_for(caplog: pytest.LogCaptureFixture) -> None:
    both = [asyncio.create_task(_fails()), asyncio.create_task(_fails())]
    with pytest.raises(ValueError, match="mine"):
        await tasks.finished(both)
    await tasks.over(both)
    del both
    assert not caplog.records


async def test_tasks_that_have_ended_cost_no_turn_of_the_loop() -> None:
    ended = asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait([ended])
    turned = asyncio.create_task(asyncio.sleep(0))
    await tasks.finished([ended])
    await tasks.over([ended])
    assert not turned.done()
    await turned
