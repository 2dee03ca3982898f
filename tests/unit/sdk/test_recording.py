"""What a run's calls are counted by: shares of the wall time, distributions, phases."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.errors import BY_CODE
from rollbox.recording import phases
from rollbox.recording.recorder import ENDS, Recorder
from rollbox.recording.shares import NOTHING, Shares
from rollbox.recording.tails import Durations

STATES = ("create", "exec", "idle")


class Time:
    """A clock that is moved by hand, in seconds."""

    def __init__(self) -> None:
        self.s = 100.0

    def now(self) -> float:
        return self.s


def recorder(time: Time) -> Recorder:
    return Recorder("r", time.now, lambda: 1_800_000_000_000 + 1000 * time.s)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.sampled_from(STATES), st.sampled_from((*STATES, None))), max_size=60))
def test_shares_add_up_to_the_wall_time(moves: list[tuple[float, str, str | None]]) -> None:
    shares, at_s = Shares(5.0), 5.0
    for took_s, first, second in moves:
        at_s += took_s
        shares.move(at_s, None, first)
        if second is not None:
            shares.move(at_s + took_s / 2, first, second)
            at_s += took_s / 2
    assert math.isclose(sum(shares.spent_s(at_s + 1).values()), at_s + 1 - 5.0, rel_tol=1e-6)
    bins = shares.over_time(at_s + 1)
    assert len(bins) <= 200


def test_time_is_divided_evenly_among_the_sandboxes_there_are() -> None:
    shares = Shares(0.0)
    shares.move(2.0, None, "create", 4)
    shares.move(4.0, "create", "exec")
    shares.move(8.0, "exec", None)
    shares.move(8.0, "create", None, 3)
    assert shares.spent_s(9.0) == {NOTHING: 3.0, "create": 2.0 + 3.0, "exec": 1.0}


def test_a_long_silence_costs_no_long_list() -> None:
    shares = Shares(0.0)
    shares.move(0.0, None, "idle", 2)
    bins = shares.over_time(1e6)
    assert 100 <= len(bins) <= 200
    assert {round(one["idle"], 6) for one in bins} == {2.0}


@given(st.lists(st.floats(0.01, 1e7), min_size=1, max_size=200))
def test_quantiles_are_right_to_a_hundredth(values: list[float]) -> None:
    counted = Durations()
    for value in values:
        counted.add(value)
    tail, ranked = counted.tail(), sorted(values)
    for told, share in ((tail.p50_ms, 0.5), (tail.p90_ms, 0.9), (tail.p99_ms, 0.99)):
        assert told == pytest.approx(ranked[math.ceil(len(ranked) * share - 1e-9) - 1], rel=0.011, abs=0.001)
    assert tail.max_ms == pytest.approx(ranked[-1], abs=0.001)
    assert tail.steps[-1][1] == 1


def test_no_durations_give_zeros_and_odd_ones_do_no_harm() -> None:
    assert Durations().tail().count == Durations().tail().p99_ms == 0
    counted = Durations()
    for value in (-5.0, 0.0, 1e300):
        counted.add(value)
    assert (counted.tail().count, counted.tail().max_ms) == (3, 1e300)


@given(
    st.dictionaries(
        st.sampled_from(("queue", "copy", "pull", "start", "ready_push", "boot", "unknown", "later")), st.floats(0, 1e6)
    ),
    st.floats(0, 1e6),
)
def test_parts_of_a_start_add_up_to_it(timings: dict[str, float], took_ms: float) -> None:
    parts = phases.of_start(timings, took_ms)
    assert sum(parts.values()) == pytest.approx(took_ms, rel=1e-6, abs=1e-6)
    assert all(part > 0 for part in parts.values())


def test_pull_and_boot_are_taken_out_of_what_they_are_parts_of() -> None:
    told = {"queue": 10, "start": 500, "pull": 400, "ready_push": 300, "boot": 100, "total": 810}
    assert phases.of_start(told, 900) == {
        "queue": 10,
        "pull": 400,
        "start": 100,
        "node": 200,
        "boot": 100,
        "call": 90,
    }


@pytest.mark.parametrize(
    ("timings", "parts"),
    [
        # What another replica has begun, and none has told of.
        ({"queue": 10, "boot": 100, "total": 600}, {"queue": 10, "boot": 100, "unknown": 890}),
        # Put on record again after a loss.
        ({}, {"unknown": 1000}),
        (
            {"queue": 10, "unknown": 400, "boot": 100, "total": 510},
            {"queue": 10, "unknown": 400, "boot": 100, "call": 490},
        ),
        ({"queue": 0, "start": 0, "ready_push": 0, "total": 0}, {"call": 1000}),
    ],
)
def test_nothing_is_blamed_that_is_not_known(timings: dict[str, float], parts: dict[str, float]) -> None:
    assert phases.of_start(timings, 1000) == parts


def test_ends_are_those_of_the_contract() -> None:
    contract = Path(__file__).parents[3] / "contract"
    known = {one["code"] for one in tomllib.loads((contract / "ends.toml").read_text())["end"].values()}
    gone = {
        code
        for code, one in tomllib.loads((contract / "errors.toml").read_text())["code"].items()
        if one["http"] == 410
    }
    assert gone & known <= ENDS
    assert set(BY_CODE) >= ENDS


def test_a_sandbox_that_is_called_twice_at_a_time_counts_once() -> None:
    time = Time()
    run = recorder(time)
    with run.executing("sb"):
        time.s += 1
        with run.executing("sb") as answered:
            time.s += 1
            answered({"end": "exited", "exit_code": 0, "run_ms": 1000})
        time.s += 1
    time.s += 1
    run.deleted("sb")
    time.s += 1
    run.end()
    time.s += 5
    assert run.wall_s == 5
    assert run.spent_s() == {"exec.run": 3.0, "idle": 1.0, NOTHING: 1.0}


def test_a_sandbox_that_is_deleted_under_a_call_is_gone() -> None:
    time = Time()
    run = recorder(time)
    with run.executing("sb"), run.executing("other"):
        run.deleted("sb")
        time.s += 1
    assert run.spent_s() == {"exec": 1.0}
    assert run.live == 1


def test_what_comes_after_the_end_is_not_counted() -> None:
    time = Time()
    run = recorder(time)
    with run.executing("sb"):
        time.s += 2
        run.end()
        time.s += 50
    assert (run.wall_s, run.spent_s()) == (2, {"exec": 2.0})
