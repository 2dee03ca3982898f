"""What the command line prints at any width of a terminal: nothing is cut, and no word is broken."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.cli import layout

WORDS = st.integers(1, 40).map(lambda size: ("registry.example:5000/team/app:1@" * 2)[:size])
CELLS = st.lists(WORDS, max_size=4).map(" ".join)
ROWS_OF_ANY = st.lists(st.lists(CELLS, min_size=6, max_size=6), max_size=3)
WIDTHS = st.integers(20, 120)


@given(ROWS_OF_ANY, st.integers(1, 6), WIDTHS, st.booleans())
def test_every_word_is_there_whole_and_no_line_is_too_long(
    rows: list[list[str]], wide: int, width: int, told: bool
) -> None:
    rows = [row[:wide] for row in rows]
    columns = ("id", "state", "expires in", "memory", "claims/min", "why")[:wide]
    written, piped = (layout.table(columns, rows, one, told=told) for one in (width, None))
    assert all(len(line) <= width or len(line.split()) == 1 for line in written.splitlines())
    there = Counter(written.split())
    assert not Counter(word for row in rows for cell in row for word in cell.split()) - there
    assert len(piped.split("\n")) == len(rows) + 1


@given(st.lists(CELLS, max_size=5).map("\n".join), WIDTHS)
def test_wrapped_lines_have_all_words_in_their_order(text: str, width: int) -> None:
    assert layout.wrapped(text, width, indent="  ").split() == text.split()
    assert layout.wrapped(text, None) == text


COLUMNS = ("id", "state", "image", "expires in", "labels")
ROWS = [("sb-1", "running", "registry.example:5000/team/app:1", "1h", "run=7, rollbox.sample=0"), ("sb-2",) * 5]


def test_a_table_that_fits_is_one() -> None:
    assert layout.table(("id", "age"), [("sb-1", "4m")], 12) == "id    age\nsb-1  4m"


def test_a_row_that_does_not_fit_names_what_it_has() -> None:
    assert layout.table(COLUMNS, ROWS[:1], 60) == (
        "sb-1\n  state running  image registry.example:5000/team/app:1\n  expires in 1h  labels run=7, rollbox.sample=0"
    )
    assert layout.table(COLUMNS, ROWS[:1], 40) == (
        "sb-1\n"
        "  state running\n"
        "  image registry.example:5000/team/app:1\n"
        "  expires in 1h\n"
        "  labels run=7, rollbox.sample=0"
    )


def test_sentences_go_on_in_their_column() -> None:
    rows = [("now", "it has been deleted by its owner")]
    assert layout.table(("when", "what"), rows, 30, told=True) == (
        "when  what\nnow   it has been deleted by\n      its owner"
    )


@pytest.mark.parametrize("rows", [[], [("sb-1", "", "", "", "")]])
def test_empty_cells_are_left_out_of_a_narrow_row(rows: list[tuple[str, ...]]) -> None:
    assert layout.table(COLUMNS, rows, 20) == ("sb-1" if rows else "id  state  image\nexpires in  labels")


def test_a_word_that_is_too_long_keeps_the_blanks_before_it() -> None:
    assert layout.wrapped("    /a/long/path/of/a/program and more", 20) == "    /a/long/path/of/a/program\n    and more"
