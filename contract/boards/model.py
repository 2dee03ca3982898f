"""What a dashboard is: rows of panels, each with its queries and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """One query and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        unit: as Grafana calls it.
        kind: `timeseries`, or `stat` for one number.
        what: what it means, and what to look at when it is bad.
        stacked: whether the series add up to something.
        most: the largest value of the axis, where it is known.
        log: whether its series differ by orders of magnitude: failures beside what is usual would be a line at 0.
    """

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    what: str = ""
    stacked: bool = False
    most: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    name: str
    title: str
    what: str
    rows: Sequence[Row]
