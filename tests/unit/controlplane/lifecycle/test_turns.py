"""Builds at once: so many, fair between owners, each told its place."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle.service import turns
from controlplane.lifecycle.service.turns import Turns


async def taken(line: Turns, owner: str, places: list[int] | None = None) -> None:
    async with aclosing(line.wait(owner)) as waiting:
        async for place in waiting:
            if places is not None:
                places.append(place)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_at_once_and_the_owner_that_holds_least_is_next() -> None:
    line, order = Turns(2), []

    async def one(owner: str) -> None:
        await taken(line, owner)
        order.append(owner)

    await one("a")
    await one("a")
    waiting = [asyncio.create_task(one(owner)) for owner in ("a", "a", "b")]
    await settled()
    assert order == ["a", "a"]
    line.leave("a")
    await asyncio.wait([waiting[2]])
    assert order == ["a", "a", "b"]
    for owner in ("a", "b"):
        line.leave(owner)
    await asyncio.wait(waiting)
    assert order == ["a", "a", "b", "a", "a"]


async def test_a_place_is_told_and_one_that_is_left_is_given_to_the_next() -> None:
    line = Turns(1)
    places: list[int] = []
    await taken(line, "a")
    first, second = (asyncio.create_task(taken(line, "a", places if one else None)) for one in range(2))
    await settled()
    assert places == [2]
    first.cancel()
    await asyncio.wait([first])
    # The turn that comes with the cancellation is not lost.
    line.leave("a")
    second.cancel()
    await asyncio.wait([second])
    await taken(line, "a")


async def test_too_many_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_WAITING", 1)
    line = Turns(1)
    await taken(line, "a")
    waiting = asyncio.create_task(taken(line, "a"))
    await settled()
    with pytest.raises(Problem) as refused:
        await taken(line, "a")
    assert refused.value.code == "rate_limited"
    waiting.cancel()
    await asyncio.wait([waiting])
