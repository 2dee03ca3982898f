"""The arrival shapes, and that the open loop measures from when a call was due."""

import asyncio
from typing import cast

import pytest

from tests.bench.lifecycle import arrivals
from tests.support.virtual_time import VirtualTimeLoop


def test_the_shapes() -> None:
    assert arrivals.staggered(3, 0.5) == [0.0, 0.5, 1.0]
    assert arrivals.burst(2) == [0.0, 0.0]
    drawn = arrivals.poisson(10_000, 50.0)
    assert drawn == sorted(drawn)
    assert drawn == arrivals.poisson(10_000, 50.0)
    assert drawn[-1] == pytest.approx(200, rel=0.05)


def test_an_open_loop_waits_for_nobody() -> None:
    async def run() -> tuple[int, list[object]]:
        now, most = 0, 0

        async def call(number: int) -> object:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(10)
            now -= 1
            return number

        met = await arrivals.open_loop(arrivals.burst(5), call)
        return most, [one.answer for one in met]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        most, answers = runner.run(run())
    assert (most, answers) == (5, [0, 1, 2, 3, 4])


async def test_one_by_one_waits_for_each() -> None:
    order: list[int] = []

    async def call(number: int) -> object:
        order.append(number)
        await asyncio.sleep(0)
        order.append(number)
        return number

    met = await arrivals.one_by_one(3, call)
    assert order == [0, 0, 1, 1, 2, 2]
    assert [cast("int", one.answer) for one in met] == [0, 1, 2]
