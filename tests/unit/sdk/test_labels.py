"""Labels: valid keys, parsing from a command line, and the query that selects by them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox import labels
from rollbox.errors import InvalidArgument


def test_labels_are_copied_as_they_are() -> None:
    given_by_caller = {"run": "a=b", "long": "x" * 10_000, "empty": ""}
    copied = labels.checked(given_by_caller)
    assert copied == given_by_caller
    assert copied is not given_by_caller
    assert labels.checked(None) == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"": "x"}, "empty"), ({"a=b": "x"}, "'a=b'"), ({"a": 1}, "not text"), ({7: "x"}, "not text"), ({"a": b""}, "a")],
)
def test_what_is_no_label_is_named(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        labels.checked(wrong)


def test_pairs_are_split_at_their_first_sign() -> None:
    assert labels.parse(["run=r", "A=b=c", "empty=", "run=later"]) == {"run": "later", "A": "b=c", "empty": ""}
    assert labels.parse(()) == {}


@pytest.mark.parametrize("wrong", ["novalue", "=x", ""])
def test_what_is_no_pair_is_named(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="key=value"):
        labels.parse([wrong])


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: "=" not in key), st.text(), max_size=5))
def test_a_query_reads_back_as_the_labels(found: dict[str, str]) -> None:
    query = labels.query(found)
    assert {name for name, _ in query} <= {"label"}
    assert labels.parse(pair for _, pair in query) == found
