"""A dashboard as a picture: its panels, of what Prometheus answered, in the rows and units that Grafana would show."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from tests.observability.dashboards import Shown
from tests.observability.live.scraping import Series

# A row has six numbers, or three graphs of twice their width.
COLUMNS, COLUMN_INCHES = 6, 2.6
NUMBER, GRAPH = (1, 0.9), (2, 2.9)
LEGENDS, LEGEND_COLUMNS = 8, 3
COLOURS = 64
SMALL_RATE = 0.001
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
    """Writes the picture of a dashboard, with few colours, since it is kept with the source."""
    rows = _rows(drawn)
    inches = [max(_size(one)[1] for one in row) for row in rows]
    figure = Figure(figsize=(COLUMNS * COLUMN_INCHES, sum(inches) + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=14)
    end_s = max((at for one in drawn for _, series in one.series for at, _ in series.values), default=begin_s)
    grid = figure.add_gridspec(len(rows), COLUMNS, height_ratios=inches)
    for place, row in enumerate(rows):
        column = 0
        for one in row:
            wide = _size(one)[0]
            axes = figure.add_subplot(grid[place, column : column + wide])
            axes.set_xlim(0, end_s - begin_s)
            _panel(axes, one, begin_s)
            column += wide
    file.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=80)
    Image.open(picture).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


def _size(one: Drawn) -> tuple[int, float]:
    return NUMBER if one.panel.kind == "stat" else GRAPH


def _rows(drawn: Sequence[Drawn]) -> Sequence[Sequence[Drawn]]:
    rows: list[list[Drawn]] = [[]]
    for one in drawn:
        kinds = {_size(other) for other in rows[-1]} | {_size(one)}
        if len(kinds) > 1 or sum(_size(other)[0] for other in rows[-1]) + _size(one)[0] > COLUMNS:
            rows.append([])
        rows[-1].append(one)
    return rows


def _panel(axes: Axes, one: Drawn, begin_s: float) -> None:
    unit = one.panel.unit
    axes.set_title(one.panel.title, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    if one.panel.kind == "stat":
        # Grafana shows the last value of the first series.
        last = next((series.values[-1][1] for _, series in one.series if series.values), math.nan)
        axes.text(0.0, 0.4, said(last, unit), fontsize=20, ha="left", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    # Those that have something to show, as far as there is room for legends.
    shown = sorted(one.series, key=lambda named: -_most(named[1]))[:LEGENDS]
    if one.panel.stacked:
        _stack(axes, shown, begin_s)
    else:
        for legend, series in shown:
            axes.plot(
                [at - begin_s for at, _ in series.values], [value for _, value in series.values], label=legend, lw=1.2
            )
    if not any(math.isfinite(value) for _, series in shown for _, value in series.values):
        axes.text(0.5, 0.5, "nothing to show", fontsize=8, color="gray", ha="center", transform=axes.transAxes)
    # As Grafana shows what is never below zero: small changes look small. A line at zero is seen.
    top = 1.1 * max(axes.dataLim.y1, 0.0) if any(_most(series) for _, series in shown) else 1.0
    axes.set_ylim(-0.02 * top, top)
    if one.panel.log:
        axes.set_yscale("symlog", linthresh=SMALL_RATE)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.grid(alpha=0.3)
    if any(legend for legend, _ in shown):
        axes.legend(fontsize=6.5, loc="upper left", bbox_to_anchor=(0, -0.12), ncols=LEGEND_COLUMNS, frameon=False)


def _most(series: Series) -> float:
    return max((abs(value) for _, value in series.values if math.isfinite(value)), default=0.0)


def _stack(axes: Axes, shown: Sequence[tuple[str, Series]], begin_s: float) -> None:
    times = sorted({at for _, series in shown for at, _ in series.values})
    layers = [[dict(series.values).get(at, 0.0) for at in times] for _, series in shown]
    if layers:
        axes.stackplot([at - begin_s for at in times], *layers, labels=[legend for legend, _ in shown], alpha=0.8, lw=0)
