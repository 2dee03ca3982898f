"""What every figure is and has to reach: `figures.toml`, written before anything is measured."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

FIGURES = Path(__file__).parent / "figures.toml"


@dataclass(frozen=True)
class Declared:
    """One figure.

    Attributes:
        statistic: how one run comes to its value.
        target: as `Record.target` reads it; empty: it is only told.
        headline: what the README calls it; empty: it is on the page of all figures only.
    """

    statistic: str
    target: str = ""
    headline: str = ""


@functools.cache
def all_declared() -> dict[str, dict[str, Declared]]:
    """Scenario -> pattern of a figure's name -> what it is."""
    table = tomllib.loads(FIGURES.read_text())
    return {
        scenario: {pattern: Declared(**one) for pattern, one in figures.items()} for scenario, figures in table.items()
    }


def declared(scenario: str, figure: str) -> Declared:
    """What this figure is, by the first pattern of its scenario that fits.

    Raises:
        KeyError: none does.
    """
    for pattern, one in all_declared().get(scenario, {}).items():
        if fnmatchcase(figure, pattern):
            return one
    raise KeyError(f"{FIGURES.name} does not declare {figure!r} of {scenario}: choose its statistic before measuring")
