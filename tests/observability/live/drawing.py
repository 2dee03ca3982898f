"""A dashboard as a picture: its panels, of what Prometheus answered, in the rows and units that Grafana would show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tests.observability.dashboards import Shown
from tests.observability.live.scraping import Series

COLUMNS, PANEL_INCHES = 3, (5.2, 2.6)
LEGENDS = 8
_SCALES = {"bytes": (1024.0, ("B", "KiB", "MiB", "GiB", "TiB")), "Bps": (1000.0, ("B/s", "kB/s", "MB/s", "GB/s"))}


@dataclass(frozen=True)
class Drawn:
    """A panel, and for each series of its queries its legend."""

    panel: Shown
    series: Sequence[tuple[str, Series]]


def said(value: float, unit: str) -> str:
    """A value in its unit, as short as an axis needs it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit in _SCALES:
        step, names = _SCALES[unit]
        place = min(int(math.log(max(abs(value), 1.0), step)), len(names) - 1)
        return f"{value / step**place:.3g} {names[place]}"
    return f"{value:.3g}"


def draw(title: str, drawn: Sequence[Drawn], begin_s: float, file: Path) -> None:
    """Writes the picture of a dashboard."""
    rows = math.ceil(len(drawn) / COLUMNS)
    figure = Figure(figsize=(COLUMNS * PANEL_INCHES[0], rows * PANEL_INCHES[1] + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=14)
    for place, one in enumerate(drawn, start=1):
        _panel(figure.add_subplot(rows, COLUMNS, place), one, begin_s)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=90)


def _panel(axes: Axes, one: Drawn, begin_s: float) -> None:
    unit = one.panel.unit
    axes.set_title(one.panel.title, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    if one.panel.kind == "stat":
        # Grafana shows the last value of the first series.
        last = next((series.values[-1][1] for _, series in one.series if series.values), math.nan)
        axes.text(0.5, 0.5, said(last, unit), fontsize=22, ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    # Those that have something to show, as far as there is room for legends.
    shown = sorted(one.series, key=lambda named: -max(abs(value) for _, value in named[1].values))[:LEGENDS]
    for legend, series in shown:
        axes.plot([at - begin_s for at, _ in series.values], [value for _, value in series.values], label=legend, lw=1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.grid(alpha=0.3)
    if any(legend for legend, _ in shown):
        axes.legend(fontsize=6, loc="upper left", frameon=False)
