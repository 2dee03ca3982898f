"""What is written down for people is what is declared: statistics, targets and the README's few figures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.checks.written import differences
from tests.bench.declared import all_declared
from tests.bench.figures import BEGIN, END, PAGE, README, headlines, in_readme, page


def figure(pattern: str, number: int) -> dict[str, Any]:
    """As a run keeps it, with numbers that nobody has measured."""
    return {
        "figure": pattern.replace("*", "some"),
        "value": 1.5 * number,
        "unit": "ms",
        "conditions": "nothing was measured",
        "baseline": {"what": "another way", "value": 100.0, "distribution": {}},
        "ratio": 100.0 / (1.5 * number),
        "met": None,
        "distribution": {"p50": 1.5 * number, "min": 1.0, "max": 9.5 * number, "n": 5},
    }


def written() -> tuple[str, str]:
    """Page and README, of one run of every scenario that has all its figures."""
    scenarios: dict[str, Any] = {}
    for name, patterns in all_declared().items():
        run = {"measured": "2026-11-23T22:00+00:00", "commit": "c01", "versions": {"python": "3.11"}}
        hardware = {"cpu": "a processor", "cores": 2, "memory_mib": 1024, "kernel": "6.1"}
        figures = [figure(pattern, number) for number, pattern in enumerate(patterns, 1)]
        scenarios[name] = [{**run, "hardware": hardware, "figures": figures}]
    return page(scenarios), in_readme(f"before\n{BEGIN}\n{END}\nafter", headlines(scenarios))


def test_what_was_written_by_the_verb_is_what_is_declared() -> None:
    assert differences(*written()) == []


def test_the_page_and_the_readme_as_they_stand_are_what_is_declared() -> None:
    assert differences(PAGE.read_text(), README.read_text()) == []


@pytest.mark.parametrize(
    ("on_page", "was", "now"),
    [
        (True, "ratio >= 25", "ratio >= 20"),
        (True, "p50 of 1,000 execs, closed loop", "best of 1,000 execs"),
        (True, "| cold create to first exec answered, p50 |", "| cold create, p50 |"),
        (False, "ratio >= 25", "ratio >= 20"),
        (False, "exec of `true` in a gVisor pod", "exec in a pod"),
        (False, "ratio 66.7", "ratio 80"),
        (False, "| a file of 200 MB", "a file of 200 MB"),
    ],
)
def test_what_differs_is_noticed(on_page: bool, was: str, now: str) -> None:
    texts = list(written())
    place = 0 if on_page else 1
    assert was in texts[place]
    texts[place] = texts[place].replace(was, now)
    assert differences(*texts)


def test_the_readme_has_few_figures() -> None:
    _, readme = written()
    assert sum(line.startswith("| ") for line in readme.splitlines()) == 6 + 1
