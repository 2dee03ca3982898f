"""What commands print, laid out for a terminal's width: lines end between words, and nothing is cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rollbox.printable import printable

if TYPE_CHECKING:
    from textwrap import TextWrapper

# Of a column that has sentences: below it they would be a word a line.
_LEAST_TOLD = 20
_INDENT = "  "


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int | None, *, told: bool = False) -> str:
    """Write a table; where it is too wide, each row as a paragraph that names what it has.

    Args:
        columns: their names.
        rows: of as many cells.
        width: of the terminal, columns; None: a row is a line, however long it is.
        told: the last column has sentences, which may go on in further lines of the table.
    """
    cells = [tuple(columns), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None and told:
        rest = width - sum(widths[:-1]) - 2 * len(widths[:-1])
        widths[-1] = min(widths[-1], max(rest, _LEAST_TOLD, *(len(word) for row in cells for word in row[-1].split())))
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        return "\n".join(line for row in cells for line in _lines(row, widths))
    # Of no rows there is nothing to say but the columns.
    return "\n".join(_paragraph(cells[0], row, width) for row in cells[1:]) or wrapped("  ".join(columns), width)


def wrapped(text: str, width: int | None, *, indent: str = "") -> str:
    """Write lines so that none is longer than a terminal, unless one word is.

    Args:
        text: one or more lines; blanks in them, and at their beginning, stay.
        width: of the terminal, columns; None: nothing is changed.
        indent: of the lines that are added, beside that of the line that they go on.
    """
    if width is None:
        return text
    return "\n".join(_wrapped(line, width, indent) for line in text.split("\n"))


def _wrapped(line: str, width: int, indent: str) -> str:
    if len(line) <= width:
        return line
    begin = line[: len(line) - len(line.lstrip())]
    wrapper = _wrapper(width, begin + indent)
    # Else a word that is too long for the line would lose them.
    wrapper.initial_indent = begin
    return "\n".join(wrapper.wrap(line[len(begin) :])) or line


def _wrapper(width: int, indent: str) -> TextWrapper:
    from textwrap import TextWrapper

    return TextWrapper(width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    last = _wrapper(widths[-1], "").wrap(row[-1]) if len(row[-1]) > widths[-1] else [row[-1]]
    for at, text in enumerate(last):
        cells = (*row[:-1], text) if at == 0 else (*("" for _ in row[:-1]), text)
        yield "  ".join(map(str.ljust, cells, widths)).rstrip()


def _paragraph(columns: Sequence[str], row: Sequence[str], width: int) -> str:
    """Write the first cell, and below it the names and values of the others, as many on a line as fit."""
    lines: list[str] = []
    held = row[0]
    for column, cell in zip(columns[1:], row[1:], strict=True):
        if not cell:
            continue
        pair = f"{column} {cell}"
        if lines and len(held) + len(pair) + 2 <= width:
            held = f"{held}  {pair}"
        else:
            lines, held = [*lines, held], f"{_INDENT}{pair}"
    return "\n".join(_wrapped(line, width, _INDENT) for line in [*lines, held])
