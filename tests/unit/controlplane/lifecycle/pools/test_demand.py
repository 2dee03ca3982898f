"""How many are wanted, and what holds starts up; both say why in a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.pools.demand import MEMORY_S, Demand, size
from controlplane.lifecycle.pools.pace import (
    FIRST_PAUSE_MS,
    FIRST_PAUSE_OF_FAULT_MS,
    FULL_PAUSE_MS,
    LAST_PAUSE_MS,
    Pace,
)
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Template

NOW_MS = 1_800_000_000_000
TIMES = st.lists(st.integers(-3_600_000, 3_600_000), max_size=60)


def spec(least: int, most: int) -> PoolSpec:
    return PoolSpec(template=Template(image="a"), min_warm=least, max_warm=most)


def asked(*after_ms: int, took_ms: int = 2_000) -> Demand:
    demand = Demand()
    demand.started(took_ms)
    for ms in after_ms:
        demand.claimed(NOW_MS + ms)
    return demand


@pytest.mark.parametrize(
    ("least", "most", "claims", "wanted", "said"),
    [
        (2, 2, [], 2, "minimum and maximum are the same"),
        (1, 50, [], 1, "the minimum of 1 is wanted: at most 0 were asked for within 2 s"),
        (0, 50, [0] * 8, 10, "10 are wanted: at most 8 were asked for within 2 s, the time of a start"),
        (0, 9, [0] * 8, 9, "the maximum of 9 is wanted"),
        (0, 50, [0, 1000, 2000, 3000], 3, "at most 2 were"),
    ],
)
def test_the_size_follows_what_comes_within_the_time_of_a_start(
    least: int, most: int, claims: list[int], wanted: int, said: str
) -> None:
    found = size(spec(least, most), asked(*claims), NOW_MS + 3_000)
    assert found.wanted == wanted
    assert said in found.why


def test_slower_starts_want_more() -> None:
    claims = range(0, 30_000, 1_000)
    assert size(spec(0, 99), asked(*claims, took_ms=2_000), NOW_MS + 30_000).wanted == 3
    assert size(spec(0, 99), asked(*claims, took_ms=20_000), NOW_MS + 30_000).wanted == 25


def test_what_was_long_ago_is_forgotten() -> None:
    demand = asked(*[0] * 8)
    assert size(spec(0, 50), demand, NOW_MS + (MEMORY_S - 10) * 1000).wanted == 10
    assert size(spec(0, 50), demand, NOW_MS + MEMORY_S * 1000).wanted == 0


@given(TIMES, st.integers(0, 9), st.integers(0, 9))
def test_wanted_is_between_minimum_and_maximum_whatever_the_clock_does(times: list[int], least: int, more: int) -> None:
    demand = asked(*times)
    assert least <= size(spec(least, least + more), demand, NOW_MS).wanted <= least + more
    assert len(demand._seconds) <= len(times)


def test_a_clock_that_jumps_back_does_not_keep_a_pool_big_for_days() -> None:
    demand = asked(86_400_000)
    assert size(spec(0, 50), demand, NOW_MS).wanted == 0


def test_an_unproven_template_is_tried_by_one() -> None:
    pace = Pace()
    assert pace.allowed(NOW_MS, 600, 0) == 1
    assert pace.allowed(NOW_MS, 600, 1) == 0
    pace.succeeded()
    assert pace.allowed(NOW_MS, 600, 1) == 600


def test_failures_in_a_row_pause_longer_and_longer_and_one_success_ends_that() -> None:
    pace, now_ms, pauses = Pace(), NOW_MS, []
    for _ in range(9):
        pace.failed("image_pull_failed", "the registry is away", now_ms)
        until_ms = pace.paused_until_ms(now_ms)
        assert until_ms is not None
        pauses.append(until_ms - now_ms)
        assert pace.allowed(now_ms, 600, 0) == 0
        now_ms = until_ms
        assert pace.allowed(now_ms, 600, 0) == 1
    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert pauses[-1] == LAST_PAUSE_MS
    assert [(one.code, one.count) for one in pace.failures] == [("image_pull_failed", 9)]
    pace.succeeded()
    assert pace.failures == ()
    assert pace.allowed(now_ms, 600, 5) == 600


def test_starts_that_fail_together_are_one_pause() -> None:
    pace = Pace()
    pace.succeeded()
    for _ in range(50):
        pace.failed("image_not_found", "gone", NOW_MS)
    assert pace.paused_until_ms(NOW_MS) == NOW_MS + FIRST_PAUSE_OF_FAULT_MS


def test_a_pause_does_not_outlast_a_clock_that_jumped_back() -> None:
    pace = Pace()
    pace.failed("image_not_found", "gone", NOW_MS + 86_400_000)
    assert pace.paused_until_ms(NOW_MS) == NOW_MS + LAST_PAUSE_MS
    assert pace.paused_until_ms(NOW_MS + LAST_PAUSE_MS) is None


def test_want_of_room_is_a_short_pause_that_room_ends_and_that_ends_no_other() -> None:
    pace = Pace()
    pace.succeeded()
    for number in range(3):
        pace.full("capacity_unavailable", "full", now_ms := NOW_MS + number * FULL_PAUSE_MS)
        assert pace.paused_until_ms(now_ms) == now_ms + FULL_PAUSE_MS
    assert [one.count for one in pace.failures] == [3]
    pace.room()
    assert pace.allowed(now_ms, 600, 0) == 1
    pace.admitted()
    assert pace.allowed(now_ms, 600, 1) == 600
    pace.failed("image_pull_failed", "the registry is away", now_ms)
    pace.full("capacity_unavailable", "full", now_ms)
    pace.room()
    assert pace.paused_until_ms(now_ms) == now_ms + FIRST_PAUSE_MS
