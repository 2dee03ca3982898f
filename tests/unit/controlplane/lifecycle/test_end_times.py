"""Ends over time: each counts once, for its owner, for a day."""

from dataclasses import replace

import pytest

from controlplane.errors import Code
from controlplane.lifecycle.record.end_times import STEP_MS, STEPS, EndTimes
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import EndCause, Sandbox, State
from tests.contract.store_factory import sandbox

NOW_MS = 1_000_000 * STEP_MS + 5


def ended(sandbox_id: str, cause: Code, at_ms: int, owner: str = "alice") -> Transition:
    after = replace(sandbox(sandbox_id, owner=owner), state=State.ENDING, end=EndCause(cause, "d", at_ms, "x"))
    return Transition.of(None, after, here=False)


def counted(times: EndTimes, owner: str = "alice", now_ms: int = NOW_MS) -> list[tuple[int, dict[Code, int]]]:
    steps = times.of(owner, now_ms)
    assert len(steps) == STEPS
    return [(place - STEPS + 1, dict(one.causes)) for place, one in enumerate(steps) if one.causes]


def test_each_end_counts_once_however_often_it_is_heard_of() -> None:
    times = EndTimes()
    for _ in range(3):
        times.on(ended("sb-1", "deleted", NOW_MS))
        times.on(ended("sb-2", "oom_killed", NOW_MS - 2 * STEP_MS))
    times.on(ended("sb-3", "deleted", NOW_MS))
    assert counted(times) == [(-2, {"oom_killed": 1}), (0, {"deleted": 2})]


def test_owners_see_their_own_and_what_is_unclaimed_is_nobodys() -> None:
    times = EndTimes()
    times.on(ended("sb-1", "deleted", NOW_MS, owner="bob"))
    unclaimed = replace(ended("sb-2", "deleted", NOW_MS, owner="pool:p").after, pool="p")
    times.on(Transition.of(None, unclaimed, here=False))
    assert counted(times) == []
    assert counted(times, "pool:p") == []
    assert counted(times, "bob") == [(0, {"deleted": 1})]


def test_what_has_no_end_does_not_count() -> None:
    times = EndTimes()
    running: Sandbox = replace(sandbox("sb-1"), state=State.RUNNING)
    times.on(Transition.of(None, running, here=True))
    assert counted(times) == []


def test_a_day_is_kept_and_no_more() -> None:
    times = EndTimes()
    times.on(ended("sb-old", "deleted", NOW_MS - (STEPS - 1) * STEP_MS))
    assert counted(times) == [(1 - STEPS, {"deleted": 1})]
    times.on(ended("sb-new", "deleted", NOW_MS + STEP_MS))
    assert len(times._steps) == 1
    times.on(ended("sb-old", "deleted", NOW_MS - (STEPS - 1) * STEP_MS))
    assert counted(times, now_ms=NOW_MS + STEP_MS) == [(0, {"deleted": 1})]


def test_of_more_than_are_remembered_the_oldest_steps_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.lifecycle.record.end_times.MOST_ENDS", 4)
    times = EndTimes()
    for number in range(9):
        times.on(ended(f"sb-{number}", "deleted", NOW_MS - (8 - number) // 3 * STEP_MS))
    assert counted(times) == [(0, {"deleted": 3})]
    # Of the newest none goes.
    times.on(ended("sb-9", "deleted", NOW_MS))
    times.on(ended("sb-10", "deleted", NOW_MS))
    assert counted(times) == [(0, {"deleted": 5})]
