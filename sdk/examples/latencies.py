"""The latencies of report.py: percentiles, and a plot of how long creates and programs took."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
from matplotlib import pyplot

mpl.use("Agg")


class Timed(Protocol):
    """A grade with its times; without an end it did not run."""

    @property
    def end(self) -> str: ...

    @property
    def create_ms(self) -> float: ...

    @property
    def exec_ms(self) -> float: ...


def plot(grades: Sequence[Timed], wall_s: float, path: Path) -> None:
    """Write the plot as PNG."""
    figure, axis = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    ran = [grade for grade in grades if grade.end]
    creates, execs = sorted(grade.create_ms for grade in ran), sorted(grade.exec_ms for grade in ran)
    shares = [(place + 1) / len(ran) * 100 for place in range(len(ran))]
    axis.step(creates, shares, label="create: until ready", where="post")
    axis.step(execs, shares, label="exec: the whole program", where="post")
    axis.set(xscale="log", xlabel="milliseconds", ylabel="% of sandboxes", ylim=(0, 100.5))
    axis.set_title(f"{len(grades)} programs, each in a fresh sandbox, {wall_s:.0f} s", loc="left")
    axis.grid(visible=True, which="both", alpha=0.25)
    axis.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def percentiles(values: list[float]) -> dict[str, float]:
    """p50, p95 and p99 by nearest rank; 0 when there are none."""
    ranked = sorted(values)
    return {
        f"p{percent}": round(ranked[math.ceil(len(ranked) * percent / 100) - 1], 3) if ranked else 0.0
        for percent in (50, 95, 99)
    }
