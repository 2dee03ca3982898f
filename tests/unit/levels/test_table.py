"""The table of levels: `make e2e` leaves no test out, whatever its marks."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from _pytest.mark.expression import Expression, ExpressionMatcher

from tests.levels import table
from tests.levels.steps import Beside, Pytest

MARKS = ("disrupts", "images", "egress", "lazily", "alone", "played", "apart")


def expressions(folder: str) -> list[str]:
    """By which the steps of `make e2e` choose among the tests of a folder."""
    steps = chain.from_iterable(level.steps for level in table.chosen(["e2e-whole"]))
    single = chain.from_iterable(one.steps if isinstance(one, Beside) else (one,) for one in steps)
    return [one.marks for one in single if isinstance(one, Pytest) and folder in one.paths]


def _has(own: tuple[str, ...]) -> ExpressionMatcher:
    def has(mark: str, /, **_: object) -> bool:
        return mark in own

    return has


@pytest.mark.parametrize(("folder", "marks"), [("e2e", MARKS), ("product", ("egress",))])
def test_whatever_its_marks_a_test_of_the_cluster_is_in_a_level(folder: str, marks: tuple[str, ...]) -> None:
    chosen = [Expression.compile(one) for one in expressions(folder)]
    for own in chain.from_iterable(combinations(marks, count) for count in range(len(marks) + 1)):
        assert any(one.evaluate(_has(own)) for one in chosen), own
