"""What a grading is asked to do, whose fault an error is, and what a reward is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import Dataset, Verdict
from rollbox.errors import BY_CODE, InvalidArgument, OomKilled, SandboxError, SandboxLost
from rollbox.grading.grader import of_grader, of_solver
from rollbox.grading.options import GradeOptions, Grading
from rollbox.grading.rewards import Malformed, chosen, parsed

OF_THE_PROGRAM = ("sandbox_not_found", "unauthenticated", "unsupported")


def test_a_grading_has_the_options_that_type_checkers_know() -> None:
    assert {*Grading.__dataclass_fields__} == {*GradeOptions.__annotations__, "image"}


@pytest.mark.parametrize("error", BY_CODE.values())
def test_an_error_of_the_solvers_sandbox_is_of_the_sample_only_where_the_sample_caused_it(
    error: type[SandboxError],
) -> None:
    found = of_solver(error("detail"))
    if error.code in OF_THE_PROGRAM:
        assert isinstance(found, error)
    else:
        assert vars(found)["fault"] == ("platform" if error.mask_sample else "sample")


@pytest.mark.parametrize("error", BY_CODE.values())
def test_an_error_of_the_graders_sandbox_is_never_of_the_sample(error: type[SandboxError]) -> None:
    found = of_grader(error("detail"), "not_run")
    assert found.fault == ("platform" if error("detail").is_infra else "grader")


def test_how_a_solver_ended_is_told() -> None:
    by_memory, by_platform = of_solver(OomKilled("memory")), of_solver(SandboxLost("lost"))
    told = [(vars(one)["fault"], vars(one)["reason"]) for one in (by_memory, by_platform)]
    assert told == [("sample", "solver_ended"), ("platform", "solver_ended")]
    nobody = InvalidArgument("no such user", details={"reason": "user_not_found"})
    assert vars(of_solver(nobody))["fault"] == "grader"


@pytest.mark.parametrize(
    ("path", "data", "wanted"),
    [
        ("r.txt", b"1", 1.0),
        ("r.txt", b" -0.5\n", -0.5),
        ("r.json", b'{"reward": 0.25, "other": 3}', 0.25),
        ("r.json", b'{"score": 7}', 7.0),
        ("r.json", b'{"a": 1, "b": 2}', None),
    ],
)
def test_rewards(path: str, data: bytes, wanted: float | None) -> None:
    assert chosen(parsed(path, data)) == wanted


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("r.txt", b""),
        ("r.txt", b"nan"),
        ("r.txt", b"inf"),
        ("r.txt", b"1e300"),
        ("r.txt", b"\xff"),
        ("r.json", b"1"),
        ("r.json", b"{}"),
        ("r.json", b'{"reward": "1"}'),
        ("r.json", b'{"reward": true}'),
        ("r.json", b'{"reward": NaN}'),
        ("r.json", b'{"reward": 1'),
        ("r.json", b"[" * 60_000),
        ("r.json", b'{"reward": ' + b"9" * 10_000 + b"}"),
    ],
)
def test_what_is_no_reward(path: str, data: bytes) -> None:
    with pytest.raises(Malformed):
        parsed(path, data)


@given(st.sampled_from(["r.txt", "r.json"]), st.binary(max_size=200))
def test_no_bytes_give_a_reward_that_is_no_number(path: str, data: bytes) -> None:
    try:
        found = parsed(path, data)
    except Malformed:
        return
    assert all(abs(value) <= 1e15 for value in found.values())


@pytest.mark.parametrize(
    "options",
    [
        {"take": "relative"},
        {"take": "/"},
        {"take": "/a/../b"},
        {"take": ["/a", "/a/b"]},
        {"take": "~/x"},
        {"take": "/proc"},
        {"take": "/dev/shm"},
        {"exclude": "/elsewhere"},
        {"exclude": "/app"},
        {"files": {"/app": b""}},
        {"files": {"tests": b""}},
        {"files": "tests"},
        {"reward_files": "/app/reward.txt"},
        {"run": []},
        {"timeout": -1},
        {"handover_timeout": 0},
        {"max_bytes": "lots"},
        {"max_entries": 0},
        {"max_path_bytes": 5000},
        {"image": None},
        {"memory": "none"},
        {"egress": 3},
        {"mounts": {"/app/data": Dataset("tests")}},
        {"take": "/data/app", "mounts": {"/data": Dataset("tests")}},
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_sent(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Grading(**{"image": "x", "take": "/app", "run": "true", **options})


def test_a_verdict_masks_what_says_nothing_of_the_sample() -> None:
    masked = {fault: Verdict(fault=fault).mask_sample for fault in ("none", "sample", "grader", "platform")}
    assert masked == {"none": False, "sample": False, "grader": True, "platform": True}
    assert not any(Verdict(fault=fault).passed for fault in ("none", "sample", "grader", "platform"))
