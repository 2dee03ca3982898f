"""The arrival shapes, and that the open loop measures from when a call was due."""

import asyncio
from typing import cast

import pytest

from rollbox.bench import arrivals


def test_the_shapes() -> None:
    assert arrivals.staggered(3, 0.5) == [0.0, 0.5, 1.0]
    assert arrivals.burst(2) == [0.0, 0.0]
    drawn = arrivals.poisson(10_000, 50.0)
    assert drawn == sorted(drawn)
    assert drawn == arrivals.poisson(10_000, 50.0)
    assert drawn[-1] == pytest.approx(200, rel=0.05)


async def test_an_open_loop_waits_for_nobody() -> None:
    together = asyncio.Barrier(5)

    async def call(number: int) -> object:
        await together.wait()
        return number

    async with asyncio.timeout(30):
        met = await arrivals.open_loop(arrivals.burst(5), call)
    assert [one.answer for one in met] == [0, 1, 2, 3, 4]


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
