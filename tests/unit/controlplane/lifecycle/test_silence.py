"""Which silent sandboxes are lost: few on a node that is ready, seen from two places, for longer than a minute."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.health.silence import (
    FEW_OF,
    GAP_MS,
    LONE_MS,
    LOST_MS,
    QUESTIONS,
    ProbeResult,
    Silence,
    lost,
    suspects,
    unanswered,
)

MINUTE = Silence(0, LOST_MS, QUESTIONS)
LONG = Silence(0, LONE_MS, QUESTIONS)

silences = st.none() | st.builds(Silence, st.just(0), st.integers(0, 2 * LONE_MS), st.integers(1, 2 * QUESTIONS))
worlds = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", None]), st.booleans(), silences, silences), min_size=1, max_size=24
).map(lambda rows: [ProbeResult(f"sb-{number}", *row) for number, row in enumerate(rows)])


def on_one_node(silent: int, answering: int, silence: Silence = MINUTE) -> list[ProbeResult]:
    dead = [ProbeResult(f"sb-s{number}", "n1", True, silence, silence) for number in range(silent)]
    return dead + [ProbeResult(f"sb-a{number}", "n1", True) for number in range(answering)]


@pytest.mark.parametrize(("silent", "answering"), [(1, 1), (1, 2), (1, 100), (2, 6), (25, 75)])
def test_few_whose_neighbours_answer_are_lost(silent: int, answering: int) -> None:
    found = lost(on_one_node(silent, answering))
    assert {one.seen.sandbox_id for one in found} == {f"sb-s{number}" for number in range(silent)}
    assert {(one.neighbours, one.answering) for one in found} == {(silent + answering - 1, answering)}


@pytest.mark.parametrize(("silent", "answering"), [(2, 0), (2, 1), (2, 5), (100, 0), (26, 74)])
def test_a_partition_or_a_busy_node_ends_nobody(silent: int, answering: int) -> None:
    everything = on_one_node(silent, answering, LONG)
    assert lost(everything) == []
    assert suspects(everything) == []


def test_one_without_neighbours_has_five_minutes() -> None:
    assert lost(on_one_node(1, 0)) == []
    assert len(lost(on_one_node(1, 0, LONG))) == 1
    # What is on other nodes is no neighbour.
    assert lost([*on_one_node(1, 0), ProbeResult("sb-far", "n2", True)]) == []


@pytest.mark.parametrize(
    "less",
    [
        {"here": None},
        {"there": None},
        {"node": None},
        {"node_ready": False},
        {"here": Silence(0, LOST_MS - 1, QUESTIONS)},
        {"there": Silence(0, LOST_MS - 1, QUESTIONS)},
        {"here": Silence(0, LOST_MS, QUESTIONS - 1)},
        {"there": Silence(0, LOST_MS, QUESTIONS - 1)},
    ],
)
def test_less_than_all_of_it_ends_nobody(less: dict[str, Silence | bool | None]) -> None:
    silent, *neighbours = on_one_node(1, 7)
    assert len(lost([silent, *neighbours])) == 1
    assert lost([replace(silent, **less), *neighbours]) == []  # type: ignore[arg-type]


@given(worlds)
def test_whatever_is_seen_the_rule_holds(everything: list[ProbeResult]) -> None:
    suspected = {one.sandbox_id for one in suspects(everything)}
    for found in lost(everything):
        one = found.seen
        beside = [other for other in everything if other.node == one.node]
        silent = [other for other in beside if other.here is not None]
        assert one.sandbox_id in suspected
        assert one.node is not None
        assert one.node_ready
        assert len(silent) <= max(1, len(beside) // FEW_OF)
        at_least = LOST_MS if len(beside) > 1 else LONE_MS
        for place in (one.here, one.there):
            assert place is not None
            assert place.last_ms - place.first_ms >= at_least


@given(worlds, st.data())
def test_one_more_that_falls_silent_never_ends_another(everything: list[ProbeResult], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(everything) - 1))
    more = [replace(one, here=one.here or Silence(0, 0)) if n == which else one for n, one in enumerate(everything)]
    before, after = ({one.seen.sandbox_id for one in lost(some)} for some in (everything, more))
    assert after <= before


@given(st.lists(st.integers(0, 2 * GAP_MS), min_size=1, max_size=20))
def test_a_silence_is_what_was_asked_without_a_pause(pauses_ms: list[int]) -> None:
    silence, asked_ms, since_ms = None, 0, 0
    for pause_ms in pauses_ms:
        asked_ms += pause_ms
        since_ms = asked_ms if silence is None or pause_ms > GAP_MS else since_ms
        silence = unanswered(silence, asked_ms)
        assert (silence.first_ms, silence.last_ms) == (since_ms, asked_ms)
