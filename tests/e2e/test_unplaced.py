"""Sandboxes that the scheduler finds no node for: they block nobody, say why, and end when their callers said."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rollbox import Client, Quota, Sandbox, Timeline
from rollbox.errors import CapacityUnavailable
from tests.support.images import IMAGE
from tests.support.installed import Installed, machines
from tests.support.release import STARTS_PER_NODE
from tests.support.replicas import of_each
from tests.support.waiting import until

# As many as the start slots of a node.
MANY = STARTS_PER_NODE
START_S = 60.0
UNPLACED = {"case": "unplaced"}


@pytest.mark.timeout(300)
async def test_what_no_node_takes_blocks_nobody_says_why_and_ends_at_its_deadline(
    stack: Installed, client: Client
) -> None:
    # An empty node would take one of them; none is empty, since the platform itself has requests.
    cores = await _cores() - 0.06
    wishes = [
        client.create(IMAGE, cpu=(cores, cores), memory="128Mi", labels=UNPLACED, start_timeout=START_S)
        for _ in range(MANY)
    ]
    async with asyncio.timeout(START_S + 60), asyncio.TaskGroup() as group:
        waiting = [group.create_task(_refused(one)) for one in wishes]
        await until(lambda: _all_told(stack, client), START_S)
        # It would have waited for one of their slots until they end.
        async with await client.create(IMAGE, cpu=(0.02, 1), memory="128Mi", start_timeout=START_S / 2) as small:
            assert (await small.exec("echo past them")).stdout == "past them\n"
        assert not any(one.done() for one in waiting)
    for one in waiting:
        # Between these words, what is reserved for others that start at that moment.
        assert all(words in one.result().detail for words in ("cpu left", "; each needs"))
        assert f"within its start timeout of {START_S:g} s" in one.result().detail
        assert one.result().retry_after_ms is not None
    # Each has a number of its own, whichever replica it was at.
    assert sorted(int(one.result().details["position"]) for one in waiting) == [*range(1, MANY + 1)]
    assert {one.result().details["waiting"] for one in waiting} == {str(MANY)}
    await until(lambda: _none_left(client))


async def _none_left(client: Client) -> bool:
    await asyncio.sleep(0.2)
    return not await client.list(UNPLACED)


async def _cores() -> float:
    """What pods may request of the largest node."""
    told = [str(node["status"]["allocatable"]["cpu"]) for node in await machines()]
    return max(float(one[:-1]) / 1000 if one.endswith("m") else float(one) for one in told)


async def _refused(creating: Coroutine[Any, Any, Sandbox]) -> CapacityUnavailable:
    with pytest.raises(CapacityUnavailable) as refused:
        await creating
    return refused.value


async def _all_told(stack: Installed, client: Client) -> bool:
    """Whether each tells why it waits, in its timeline and among its owner's places."""
    timelines: list[Timeline] = [await client.timeline(one.id) for one in await client.list(UNPLACED)]
    # Each replica tells the queue of all.
    quotas: list[Quota] = await of_each(stack, Client.quota)
    told = [[one.why for one in quota.queue if one.waits_for == "capacity_unavailable"] for quota in quotas]
    numbers = [f"it is number {number} of {MANY} of" for number in range(1, MANY + 1)]
    return all(sum(number in one.summary for one in timelines) == 1 for number in numbers) and all(
        [number in one for number, one in zip(numbers, why, strict=False)] == [True] * MANY for why in told
    )
