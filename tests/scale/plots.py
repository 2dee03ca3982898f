"""The plots of a simulation, as PNG."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tests.scale.phases import Simulation


def draw(simulation: Simulation, folder: Path) -> None:
    """Write fill.png, execs.png and parts.png, of what was measured."""
    curves = simulation.curves
    with plt.style.context("seaborn-v0_8-whitegrid"):
        _fill({name: curves[name] for name in ("bare pods", "fill") if name in curves}, folder / "fill.png")
        _execs({name: moments for name, moments in curves.items() if name.startswith("execs")}, folder / "execs.png")
        _parts(simulation, folder / "parts.png")


def _fill(curves: dict[str, list[float]], path: Path) -> None:
    figure, axes = _made()
    for name, moments in curves.items():
        label = "bare pods, running" if name == "bare pods" else "sandboxes, ready"
        axes.plot(moments, range(1, len(moments) + 1), label=f"{label}: {len(moments) / max(moments[-1], 1e-9):.1f}/s")
    axes.set(xlabel="seconds since the first was asked for", ylabel="there", title="Fill from zero")
    _saved(figure, axes, path)


def _execs(curves: dict[str, list[float]], path: Path) -> None:
    figure, axes = _made()
    for name, took_s in curves.items():
        shares = [100 * (number + 1) / len(took_s) for number in range(len(took_s))]
        axes.plot(took_s, shares, label=f"{name}: p99 {took_s[int(len(took_s) * 0.99) - 1]:.2f} s")
    axes.set(xlabel="seconds until answered", ylabel="percent answered", title="A command in every sandbox at once")
    _saved(figure, axes, path)


def _parts(simulation: Simulation, path: Path) -> None:
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 8), sharex=True)
    rows = simulation.samples.rows
    names = sorted({name for _, _, used in rows for name in used if not name.startswith("old_")})
    for name in names:
        points = [(at_s, used[name]) for at_s, _, used in rows if name in used]
        above.plot([at_s for at_s, _ in points], [one.resident_bytes / 2**20 for _, one in points], label=name)
        spent = [
            (at_s, max(0.0, (one.cpu_s - before.cpu_s) / (at_s - at))) for (at, before), (at_s, one) in pairwise(points)
        ]
        below.plot([at_s for at_s, _ in spent], [cores for _, cores in spent], label=name, linewidth=0.8)
    live = above.twinx()
    live.plot([at_s for at_s, _, _ in rows], [count for _, count, _ in rows], "k--", linewidth=1)
    live.set_ylabel("pods that run (dashed)")
    for name, began_s, _ in simulation.phases:
        for axes in (above, below):
            axes.axvline(began_s, color="grey", linewidth=0.5)
        above.text(began_s, above.get_ylim()[1], name, rotation=45, fontsize=7)
    above.set_ylabel("resident MiB")
    below.set(xlabel="seconds", ylabel="cores")
    below.legend(fontsize=7, ncol=2)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _made() -> tuple[Any, Axes]:
    figure, axes = plt.subplots(figsize=(8, 4.5))
    return figure, axes


def _saved(figure: Any, axes: Axes, path: Path) -> None:
    if axes.lines:
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
