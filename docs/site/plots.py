"""Plots of a benchmark's figures: each value beside what it was compared to in the same run, from docs/figures.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Final

from docs.site.sources import ROOT

_NUMBER: Final = r"(?P<{0}>[\d.]+)(?: \((?P<{0}_least>[\d.]+) to (?P<{0}_most>[\d.]+)\))?"
_ROW: Final = re.compile(
    r"^\| (?P<name>[^|]+) \| (?P<statistic>[^|]+) \| "
    + _NUMBER.format("value")
    + r" (?P<unit>\S+) \| (?P<what>[^|:]+): "
    + _NUMBER.format("base")
    + r" (?P=unit), ratio [\d.]+ \| [^|]* \| (?P<met>[^|]*) \|$",
    re.M,
)
WIDTH: Final = 560
BAR: Final = 16
STEP: Final = 72
HEAD: Final = 30


@dataclass(frozen=True)
class Bar:
    """One bar: what it shows, the number, and the range of the rounds."""

    of: str
    value: float
    least: float
    most: float


@dataclass(frozen=True)
class Pair:
    """A figure and what it was compared to, in one unit; ``missed``: it has a target and misses it."""

    name: str
    unit: str
    value: Bar
    base: Bar
    missed: bool


def pairs(scenario: str) -> list[Pair]:
    """The figures of a scenario that have a baseline, in the order of docs/figures.md.

    Raises:
        ValueError: there is no such scenario, or it has none.
    """
    text = (ROOT / "docs/figures.md").read_text()
    section = text.partition(f"\n## {scenario}\n")[2].partition("\n## ")[0]
    found = [_pair(row) for row in _ROW.finditer(section)]
    if not found:
        raise ValueError(f"docs/figures.md has no figures of {scenario} with what they are compared to")
    return found


def plot(scenario: str) -> str:
    """A panel for each unit of the scenario's figures; its axis begins at 0."""
    units = list(dict.fromkeys(pair.unit for pair in pairs(scenario)))
    return "".join(_panel([pair for pair in pairs(scenario) if pair.unit == unit]) for unit in units)


def _pair(row: re.Match[str]) -> Pair:
    value, base = _bar(row, "value", row["name"].rsplit(", ", 1)[-1]), _bar(row, "base", row["what"])
    return Pair(row["name"], row["unit"], value, base, missed="no" in row["met"])


def _bar(row: re.Match[str], field: str, of: str) -> Bar:
    value = float(row[field])
    return Bar(of, value, float(row[f"{field}_least"] or value), float(row[f"{field}_most"] or value))


def _panel(rows: list[Pair]) -> str:
    unit, most = rows[0].unit, max(max(row.value.most, row.base.most) for row in rows)
    height = HEAD + len(rows) * STEP
    parts = [f'<text class="unit" x="0" y="14">{escape(unit)}, less is better; thin lines: range of the rounds</text>']
    for number, row in enumerate(rows):
        top = HEAD + number * STEP
        name = row.name + (" (target missed)" if row.missed else "")
        parts.append(f'<text x="0" y="{top + 12}">{escape(name)}</text>')
        parts.append(_drawn(row.value, "bar", top + 18, most, unit))
        parts.append(_drawn(row.base, "base", top + 18 + BAR + 3, most, unit))
    label = f"{rows[0].name} and {len(rows) - 1} more, in {unit}"
    return (
        f'<div class="plot"><svg role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH + 200} {height}" '
        f'width="{WIDTH + 200}" height="{height}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg></div>'
    )


def _drawn(bar: Bar, kind: str, top: int, most: float, unit: str) -> str:
    end, least, longest = (WIDTH * value / most for value in (bar.value, bar.least, bar.most))
    middle = top + BAR / 2
    return (
        f'<rect class="{kind}" x="0" y="{top}" width="{max(end, 1):.0f}" height="{BAR}" rx="2"/>'
        f'<path class="range" d="M{least:.0f} {middle:.0f}H{longest:.0f}"/>'
        f'<text x="{longest + 8:.0f}" y="{top + BAR - 4}">{bar.value:g} {escape(unit)} {escape(bar.of)}</text>'
    )
