"""What code in a sandbox prints, and what names hold, does nothing to the terminal that shows it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbox.cli.harmless import Harmless
from rollbox.printable import printable, printable_lines

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\udc80-\udc9f]")
COLOUR = re.compile("\x1b\\[[0-9;:]*m")
PIECES = st.lists(
    st.sampled_from(
        (b"\x1b", b"[", b"31", b"m", b";", b"]0;t", b"\x07", b"\xc2", b"\x9b", b"a\n", b"\r", b"\xc3\xa9", b"\0")
    )
    | st.sampled_from((b"\xe0", b"\xe6", b"\xed", b"\xf0", b"\xf1", b"\xf4", b"\x82", b"\x90", b"\xa0"))
    | st.characters(min_codepoint=0xA0, exclude_categories=["Cs"]).map(str.encode),
    max_size=40,
)


def passed(*pieces: bytes) -> bytes:
    harmless = Harmless()
    return b"".join(map(harmless, pieces)) + harmless.rest()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"plain\ttext\r\n", b"plain\ttext\r\n"),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m"),
        (b"\x1b]0;title\x07", b"^[]0;title^G"),
        (b"\x1b]52;c;ZXZpbA==\x1b\\", b"^[]52;c;ZXZpbA==^[\\"),
        (b"\x1b[2J\x1b[H", b"^[[2J^[[H"),
        (b"\xc2\x9b2J \x7f \x08", rb"\x9b2J ^? ^H"),
        ("é ü 漢 🐍".encode(), "é ü 漢 🐍".encode()),
        (b"\x9b2J \x85", rb"\x9b2J \x85"),
        (b"\xe0\x82\x9b2J \xc0\x9b", b"\xe0\\x82\\x9b2J \xc0\\x9b"),
        (b"\xf0\x9f\x90", b"\xf0\\x9f\\x90"),
        (b"cut \x1b[3", b"cut ^[[3"),
    ],
)
def test_colours_stay_and_all_else_that_a_terminal_obeys_is_made_visible(said: bytes, shown: bytes) -> None:
    assert passed(said) == shown
    assert passed(*(said[at : at + 1] for at in range(len(said)))) == shown


@given(PIECES, st.randoms())
def test_it_is_the_same_however_the_output_comes_in_pieces(pieces: list[bytes], random: object) -> None:
    whole = passed(b"".join(pieces))
    assert passed(*pieces) == whole
    assert not CONTROL.search(COLOUR.sub("", whole.decode(errors="surrogateescape")))


@given(st.text())
def test_names_are_printable_and_lines_stay(text: str) -> None:
    assert printable(text).isprintable()
    assert printable_lines(text).count("\n") == text.count("\n")
