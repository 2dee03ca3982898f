"""The table that ends a run of the hosts' suites: what works, what is broken and why, and what was not tried."""

from __future__ import annotations

from tests.integrations.summary import Tried, changed, pins, table
from tests.support.junit import Record, Test

FAILED = Test(
    "test_truth", "test_a[x]", "failed", "def test_a():\n>   box()\nE   TypeError: no 'x'\nE   more\nfile:3: it"
)
PASSED = Test("test_truth", "test_b", "passed")


def lines(*hosts: Tried) -> list[str]:
    return [" ".join(line.split()) for line in table(hosts)]


def test_what_works_is_a_row_alone() -> None:
    works = Tried("Harbor", Record("0.26.0", "", (PASSED, PASSED)), "0.26.0", fits=True, newer={"aiohttp": ("4", "3")})
    assert lines(works) == ["host version passed failed types", "Harbor 0.26.0 2 0 fit"]


def test_what_is_broken_says_what_failed_why_and_what_is_not_as_pinned() -> None:
    broken = Tried(
        "Harbor",
        Record("0.27.0", "", (PASSED, FAILED)),
        "0.26.0",
        fits=False,
        why="AssertionError: environment.py:3: error: no",
        newer={"harbor": ("0.27.0", "0.26.0"), "pydantic": ("3", "2")},
    )
    assert lines(broken)[1:] == [
        "Harbor 0.27.0 (pinned: 0.26.0) 1 1 differ BROKEN",
        "",
        "Harbor:",
        "test_truth.test_a[x]: TypeError: no 'x'",
        "AssertionError: environment.py:3: error: no",
        "not as pinned: harbor 0.27.0 (0.26.0), pydantic 3 (2)",
    ]


def test_a_host_without_a_record_says_why() -> None:
    none = Tried("TRL", pinned="1.16.0", why="uv pip install has failed:\nno solution")
    assert lines(none)[1:] == ["TRL no test has run BROKEN", "", "TRL:", "uv pip install has failed:", "no solution"]
    assert lines(Tried("TRL", left_out="no checkout"))[1:] == ["TRL left out: no checkout"]


def test_what_differs_is_of_both_lists() -> None:
    pinned = pins(
        "aiohttp==3.14.5 \\\n --hash=sha256:00\nPyYAML==6.0 ; python_version > '3'\nnumpy==1\nnumpy==2\nold==1\n"
    )
    assert changed(pins("aiohttp==3.15\npyyaml==6.0\nnumpy==1\nnew==1\n-e /rollbox\n"), pinned) == {
        "aiohttp": ("3.15", "3.14.5")
    }
