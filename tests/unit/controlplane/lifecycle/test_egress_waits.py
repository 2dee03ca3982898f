"""Whom a change of a record wakes that waits for a network policy."""

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
    with waits.waiting(before.id, 7) as waiting:
        waits.on(_told(before, 6))
        assert not waiting.done()
        waits.on(_told(before, 7))
        assert waiting.result().egress.revision == 7


async def test_a_later_switch_takes_the_place_of_one_that_is_waited_for(before: Sandbox) -> None:
    waits = Waits()
    with waits.waiting(before.id, 7) as waiting, waits.waiting(before.id, 9) as later:
        waits.on(_told(before, 8))
        assert waiting.done()
        assert not later.done()
