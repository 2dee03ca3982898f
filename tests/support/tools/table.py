"""The guide's table of programs, of what the tests saw.

python -m tests.support.tools.table build/egress/tools-engine.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.tools.programs import PROGRAMS

HEAD: Final = ("program", "finds the proxy by", "shows of a refusal", "refused after", "version")
HOW: Final = {
    "variables": "the variables",
    "platform": "a setting that every command has",
    "nothing": "nothing: it reaches nothing",
}
SHOWS: Final = {"sentence": "the sentence", "403": "403", "": "that it failed"}
Seen = Mapping[str, Mapping[str, Any]]


def kinds() -> Iterator[tuple[str, str, str]]:
    """Of each program what its row begins with: what the tests assert of it."""
    for program in PROGRAMS:
        yield program.name, HOW.get(program.how, f"`{program.how}`"), SHOWS[program.shows]


def rows(seen: Seen) -> Iterator[tuple[str, ...]]:
    """The table, with seconds."""
    yield HEAD
    yield ("---",) * len(HEAD)
    for name, *said in kinds():
        row = seen.get(name)
        yield name, *said, _seconds(row), row["version"] if row else "-"


def _seconds(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    again = f"; {row['by_itself_ms'] / 1000:.1f} by itself" if "by_itself_ms" in row else ""
    return f"{row['refused_ms'] / 1000:.1f} ({row['start_ms'] / 1000:.1f}){again}"


def _printed(lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(_printed(rows(json.loads(Path(sys.argv[1]).read_text()))))
