"""The tables of docs/operating/hardening.md: read, and written anew with what they say of why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.hardening import facts, rights

Cells = tuple[str, ...]
PAGE: Final = Path(__file__).parents[3] / "docs/operating/hardening.md"


def read(text: str, head: Cells) -> list[Cells]:
    """The rows of the table with this head.

    Raises:
        ValueError: there is none.
    """
    begins, ends = _place(text, head)
    rows = text[begins:ends].splitlines()[2:]
    return [tuple(cell.strip() for cell in row.strip()[1:-1].split("|")) for row in rows]


def written(text: str, head: Cells, rows: Sequence[Cells]) -> str:
    """The page with these rows, which lack the last cell; what it says of why stays where the row's name does.

    A right has no name of its own: what it says stays where account and resources do.

    Args:
        text: the page.
        head: of the table.
        rows: of the table, in its order.
    """
    why = {_key(head, row): row[-1] for row in read(text, head)}
    begins, ends = _place(text, head)
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line((*row, why.get(_key(head, row), ""))) for row in rows]
    return text[:begins] + "\n".join(lines) + "\n" + text[ends:]


def _key(head: Cells, row: Cells) -> Cells:
    return (row[0], row[1], row[3]) if head == rights.HEAD else row[: 2 if head == facts.LEVELS_HEAD else 1]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _place(text: str, head: Cells) -> tuple[int, int]:
    begins = text.index(_line(head) + "\n")
    ends = text.find("\n\n", begins)
    return begins, len(text) if ends < 0 else ends + 1
