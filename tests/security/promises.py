"""The promises of docs/inside/threat-model.md with the tests that hold them. Pure but for the page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/inside/threat-model.md"
HEAD: Final = "| promise | tests |\n| --- | --- |\n"
_NAMED: Final = re.compile(r"`([\w./-]+)::(\w+)`")


@dataclass(frozen=True)
class Promise:
    """A row of the page.

    Attributes:
        says: what is promised.
        tests: file and name of each.
        rest: what else is in their cell, which should be nothing.
    """

    says: str
    tests: tuple[tuple[str, str], ...]
    rest: str


def promises(page: str) -> list[Promise]:
    """Each promise of a page."""
    table = page.partition(HEAD)[2].partition("\n\n")[0]
    cells = [line.strip("|").split(" | ") for line in table.splitlines()]
    return [
        Promise(
            says.strip(), tuple((file, name) for file, name in _NAMED.findall(tests)), _NAMED.sub("", tests).strip(" ,")
        )
        for says, tests in cells
    ]
