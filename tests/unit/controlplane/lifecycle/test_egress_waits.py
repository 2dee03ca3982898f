"""Whom a change of a record wakes that waits for a network policy."""

import asyncio
from dataclasses import replace

import pytest

from controlplane.lifecycle.egress.waits import Waits
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox
from tests.unit.controlplane.test_metrics import sandbox as made


@pytest.fixture
def before() -> Sandbox:
    return made(1)


def _told(before: Sandbox, revision: int) -> Transition:
    egress = replace(before.egress, name="packages", digest="d", revision=revision, applied=revision)
    return Transition.of(before, replace(before, egress=egress, version=before.version + 1), here=False)


async def test_an_earlier_switch_that_is_told_late_wakes_nobody(before: Sandbox) -> None:
    waits = Waits()
    with waits.waiting(before.id) as wait:
        waiting = asyncio.ensure_future(wait.until(7))
        for revision in (6, 7):
            await asyncio.sleep(0)
            assert not wait.woken.done()
            waits.on(_told(before, revision))
        assert (await waiting).egress.revision == 7


async def test_a_later_switch_takes_the_place_of_one_that_is_waited_for(before: Sandbox) -> None:
    waits = Waits()
    with waits.waiting(before.id) as wait, waits.waiting(before.id) as later:
        both = [asyncio.ensure_future(wait.until(7)), asyncio.ensure_future(later.until(9))]
        await asyncio.sleep(0)
        waits.on(_told(before, 8))
        assert (await both[0]).egress.revision == 8
        assert not later.woken.done()
        both[1].cancel()


async def test_an_answer_that_overtakes_the_question_is_heard(before: Sandbox) -> None:
    """Another control plane's word may be read before this one's own change has its answer from the store."""
    waits = Waits()
    with waits.waiting(before.id) as wait:
        waits.on(_told(before, 7))
        waits.on(_told(before, 6))
        assert (await wait.until(7)).egress.revision == 7
    waits.on(_told(before, 8))
    assert not waits._waiting
