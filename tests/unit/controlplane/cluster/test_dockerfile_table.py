"""The table of instructions on the page about builds: what the page says is what is tried."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from controlplane.cluster.dockerfiles.recipe import recipe
from controlplane.errors import Problem
from tests.support.dockerfile_rows import PAGE, ROWS, dockerfile, tries, written

PRODUCT = Path(__file__).parents[3] / "product"
TRIES = dict(tries())


def test_the_page_has_the_table_of_what_is_tried() -> None:
    assert written(PAGE.read_text()) == PAGE.read_text(), "python -m tests.support.dockerfile_rows"
    assert all(row.tries or row.elsewhere for row in ROWS)


def test_what_shows_a_row_elsewhere_is_there() -> None:
    there = set(re.findall(r"def (test_\w+)", "".join(one.read_text() for one in PRODUCT.glob("test_build*.py"))))
    assert {name for row in ROWS for name in row.elsewhere} <= there


@pytest.mark.parametrize("name", [name for name, one in TRIES.items() if not one.refused or "policy" not in one.said])
def test_a_row_is_judged_as_it_says(name: str) -> None:
    one = TRIES[name]
    read = partial(recipe, dockerfile(one, "base:1"), {}, "", owner="me", platform="linux/amd64")
    if not one.refused:
        assert "base:1" in read().images
        return
    with pytest.raises(Problem, match=re.escape(one.said)) as refused:
        read()
    assert refused.value.code == one.refused
