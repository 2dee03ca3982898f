"""What the simulated cluster computes without a process: quantiles, Services, what its watch tells, its verdict."""

from typing import Any

import pytest

from tests.scale import report

GOOD = {
    "fill": {"of_bare": 0.9, "failed": 0},
    "execs, round 1": {"failed": 0, "answered by another sandbox": 0},
    "upgrade": {"failures": {}},
    "nodes lost": {"ends": ["node_lost"]},
    "refill": {"failed": 0, "nodes_added": 1},
    "nodes go": {"nodes": 1, "gone_s": 40.0},
}


def test_a_simulation_is_good_when_every_target_was_measured_and_met() -> None:
    assert report.verdict(GOOD) == 0


@pytest.mark.parametrize(
    "figures",
    [
        {"fill": {"of_bare": 0.7, "failed": 0}},
        {"fill": {"of_bare": 0.9, "failed": 1}},
        {"execs, round 2": {"failed": 0, "answered by another sandbox": 1}},
        {"upgrade": {"failures": {"draining": 1}}},
        {"nodes lost": {"ends": ["exited", "node_lost"]}},
        {"nodes lost": {}},
        {"refill": {"failed": 1, "nodes_added": 1}},
        {"refill": {"failed": 0, "nodes_added": 0}},
        {"nodes go": {"nodes": 1}},
    ],
)
def test_it_is_not_where_one_is_missed_or_was_not_measured(figures: dict[str, dict[str, Any]]) -> None:
    assert report.verdict({**GOOD, **figures}) == 1
