"""The record computes what it claims."""

from __future__ import annotations

import pytest

from rollbox.bench.sample import percentile
from tests.bench.record import Baseline, Record, distribution


def record(value: float, target: str, baseline: float | None = None, faster_is: str = "smaller") -> Record:
    held_against = None if baseline is None else Baseline("b", baseline)
    return Record("f", value, "ms", "c", held_against, faster_is, target=target)


@pytest.mark.parametrize(
    ("value", "target", "baseline", "met"),
    [
        (2.0, "value <= 2", None, True),
        (2.1, "value <= 2", None, False),
        (2.4, "value <= baseline + 1.5", 1.0, True),
        (2.6, "value <= baseline + 1.5", 1.0, False),
        (2.0, "ratio >= 15", 30.0, True),
        (2.0, "ratio >= 15", 29.0, False),
        (2.0, "", 29.0, None),
    ],
)
def test_met_follows_from_the_target(value: float, target: str, baseline: float | None, met: bool | None) -> None:
    assert record(value, target, baseline).met is met


@pytest.mark.parametrize("target", ["fast", "value < 3", "value <= x"])
def test_a_target_that_cannot_be_read_is_an_error(target: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        _ = record(1.0, target).met


@pytest.mark.parametrize("target", ["ratio >= 2", "value <= baseline + 1"])
def test_a_target_on_a_missing_baseline_is_an_error(target: str) -> None:
    with pytest.raises(ValueError, match="needs a baseline"):
        _ = record(1.0, target).met


def test_the_ratio_says_how_many_times_better() -> None:
    assert record(2.0, "", 30.0).ratio == 15.0
    assert record(30.0, "", 2.0, "larger").ratio == 15.0


def test_percentiles_are_by_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, s) for s in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert distribution([3.0])["p99"] == 3.0
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)
