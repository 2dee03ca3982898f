"""The guide's table of programs says what the tests of them assert."""

from __future__ import annotations

from pathlib import Path

from tests.support.tools.table import HEAD, kinds

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "egress.md"


def test_each_program_of_the_tests_has_its_row() -> None:
    lines = GUIDE.read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(f"| {HEAD[0]} | {HEAD[1]} |")) + 2
    rows = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip() for cell in line.strip("|").split("|"))[:3])
    assert rows == [*kinds()]
