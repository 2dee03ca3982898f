"""A table of a page with what was seen of programs of others: which version, what ran, and with what result; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.support.junit import NOT_SUPPORTED, Test

# Where the programs ran, by the names of backends.
PLACES: Final = {"engine": "engine", "gvisor": "gVisor"}
OLDEST: Final = " (the oldest)"
_HEAD: Final = "| {kind} | version | what ran | engine | gVisor |\n|---|---|---|---|---|\n"
_BAR: Final = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Row:
    """What was seen of a program.

    Attributes:
        program: its name.
        version: of it; one that ends with `OLDEST` is beside the newest that was seen.
        what: ran.
        seen: the result, by the place; none where it did not run.
    """

    program: str
    version: str
    what: str
    seen: Mapping[str, str]

    @property
    def group(self) -> tuple[str, bool]:
        """The program, and whether this is its oldest version: of both only one version is in a table."""
        return self.program, self.version.endswith(OLDEST)


@dataclass(frozen=True)
class Seen:
    """A run of a program's tests.

    Attributes:
        program, version: as in `Row`.
        place: where it ran, as `PLACES` has it.
        results: by what ran.
    """

    program: str
    version: str
    place: str
    results: Mapping[str, str]


def result(tests: Iterable[Test]) -> str:
    """Say in a cell what these tests did: how many passed, which failed, and why others did not run."""
    tests = tuple(tests)
    passed = [one for one in tests if one.outcome == "passed"]
    missing = dict.fromkeys(one.not_supported for one in passed if one.not_supported)
    failed = dict.fromkeys(one.name.partition("[")[0] for one in tests if one.outcome == "failed")
    reasons = Counter(one.said.removeprefix(NOT_SUPPORTED) for one in tests if one.outcome == "skipped")
    parts = [f"{sum(one.cases for one in passed)} passed"]
    if failed:
        count = sum(one.outcome == "failed" for one in tests)
        parts.append(f"**{count} failed**: {', '.join(f'`{name}`' for name in failed)}")
    parts += [f"{count} not supported: {reason}" for reason, count in reasons.items()]
    if missing:
        parts.append(f"not supported: {', '.join(missing)}")
    return _cell("; ".join(parts))


def renewed(rows: Sequence[Row], runs: Iterable[Seen], order: Sequence[str]) -> list[Row]:
    """Put what runs have seen in the place of what was seen before there; rows of other programs stay.

    Args:
        rows: of the table so far.
        runs: the oldest first. What another version of a program did leaves the table with the first run of this one.
        order: of the programs.
    """
    for run in runs:
        rows = [*_without(rows, run), *_with(rows, run)]
    return sorted(rows, key=lambda row: (order.index(row.program), row.group))


def parsed(table: str) -> list[Row]:
    """Read the rows of a table.

    Raises:
        ValueError: a line is no row of it.
    """
    rows: list[Row] = []
    for line in table.strip().splitlines()[2:]:
        cells = [cell.strip() for cell in _BAR.split(line)[1:-1]]
        if len(cells) != 3 + len(PLACES):
            raise ValueError(f"no row of {3 + len(PLACES)} cells: {line}")
        program, version, what, *seen = cells
        same = rows[-1] if rows and not program else None
        rows.append(
            Row(
                program or (same.program if same else ""),
                version or (same.version if same else ""),
                what,
                {place: cell for place, cell in zip(PLACES.values(), seen, strict=True) if cell},
            )
        )
    return rows


def rendered(rows: Sequence[Row], kind: str) -> str:
    """Write the table; a name and a version that are those of the row before are left out.

    Args:
        rows: in their order.
        kind: what the programs are, for its head.
    """
    lines, before = [], Row("", "", "", {})
    for row in rows:
        program = "" if row.program == before.program else row.program
        version = "" if not program and row.version == before.version else row.version
        cells = (program, version, row.what, *(row.seen.get(place, "") for place in PLACES.values()))
        lines.append(re.sub(" +", " ", f"| {' | '.join(cells)} |\n"))
        before = row
    return _HEAD.format(kind=kind) + "".join(lines)


def _without(rows: Sequence[Row], run: Seen) -> list[Row]:
    group = Row(run.program, run.version, "", {}).group
    return [row for row in rows if row.group != group]


def _with(rows: Sequence[Row], run: Seen) -> list[Row]:
    """The rows of a run, with what was seen of the same version elsewhere."""
    kept = {row.what: row for row in rows if (row.program, row.version) == (run.program, run.version)}
    found = []
    for what in (*run.results, *(one for one in kept if one not in run.results)):
        row = kept.get(what, Row(run.program, run.version, what, {}))
        elsewhere = {place: cell for place, cell in row.seen.items() if place != run.place}
        now = {run.place: run.results[what]} if what in run.results else {}
        if elsewhere or now:
            found.append(replace(row, seen={**elsewhere, **now}))
    return found


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())
