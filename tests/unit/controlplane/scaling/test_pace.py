"""Pauses, late nodes, what was spare for long, and growth."""

from controlplane.scaling.growth import INTERVAL_MS, Growth
from controlplane.scaling.kinds import Kind
from controlplane.scaling.pace import FIRST_PAUSE_MS, LAST_PAUSE_MS, Pace

SMALL = Kind((100, 1 << 28, 0, 0, 1))


def test_pauses_double_until_a_node_comes() -> None:
    pace, now_ms, pauses = Pace(), 1_000_000, []
    pace.see(0, 1, 600_000, now_ms)
    for _ in range(8):
        pace.failed("no stock", now_ms)
        pace.failed("again, while it pauses", now_ms + 1)
        pauses.append(pace.paused_until_ms - now_ms)
        assert pace.paused(now_ms)
        assert pace.trouble == "no stock"
        now_ms = pace.paused_until_ms
        assert not pace.paused(now_ms)
    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert pauses[-1] == LAST_PAUSE_MS
    pace.failed("no stock", now_ms)
    pace.see(1, 0, 600_000, now_ms + 5_000)
    assert not pace.paused(now_ms + 5_000)
    pace.failed("no stock", now_ms + 6_000)
    assert pace.paused_until_ms == now_ms + 6_000 + FIRST_PAUSE_MS


def test_a_node_is_late_by_the_last_that_came_or_was_asked_for() -> None:
    pace = Pace()
    for at_s, nodes, coming, late in [(0, 0, 0, False), (10, 0, 2, False), (69, 0, 2, False), (70, 0, 2, True)]:
        pace.see(nodes, coming, 60_000, 1_000 * at_s)
        assert pace.late is late
    pace.see(1, 1, 60_000, 80_000)
    assert not pace.late
    assert pace.arrival_ms == 70_000
    pace.see(1, 1, 60_000, 139_999)
    assert not pace.late
    # A clock that goes back makes nothing late.
    pace.see(1, 1, 60_000, 10_000)
    assert not pace.late


def test_spare_is_what_was_spare_all_the_time() -> None:
    pace = Pace()
    found = [pace.spared(spare, 30_000, 10_000 * at) for at, spare in enumerate([3, 3, 1, 3, 3, 3, 3])]
    assert found == [0, 0, 0, 1, 1, 1, 3]
    pace.needed()
    assert pace.spared(3, 30_000, 70_000) == 0


def grown(counts: list[int]) -> int:
    growth = Growth()
    for at, count in enumerate(counts):
        growth.see({SMALL: count}, at * INTERVAL_MS)
    return growth.ahead(60_000).get(SMALL, 0)


def test_growth_that_lasts_counts_and_a_burst_does_not() -> None:
    assert grown([0, 100, 200, 300]) == 600
    assert grown([0, 4_096, 4_096, 4_096]) == 0
    assert grown([0, 100, 150, 250]) == 300
    assert grown([300, 200, 100, 0]) == 0
    assert grown([0, 100]) == 0
