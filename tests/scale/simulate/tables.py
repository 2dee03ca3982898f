"""What a simulated week is told as: figures, a page, plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from tests.scale.simulate.traffic import DAY_S
from tests.scale.simulate.world import Told

# Prices of the report, in any currency: of a node with 256 slots, and of a GPU that waits for rollouts.
NODE_HOUR, GPU_HOUR = 1.5, 2.5
SHARES = (0.5, 0.99, 0.999)
Figures = dict[str, float]


def figures(told: Mapping[str, Told]) -> dict[str, Figures]:
    """By policy."""
    return {name: _figures(one) for name, one in told.items()}


def _figures(told: Told) -> Figures:
    nodes, stalls = told.node_s / 3600 * NODE_HOUR, told.stalled_gpu_s / 3600 * GPU_HOUR
    waits = {f"wait_p{100 * share:g}_s": told.wait_s(share) for share in SHARES}
    return {
        "creates": told.creates,
        "served_warm": told.warm / max(1, told.creates),
        **waits,
        "wait_most_s": max(told.waits_s, default=0.0),
        "node_hours": told.node_s / 3600,
        "slots_used": told.busy_s / max(1.0, 256 * told.node_s),
        "idle_sandbox_hours": told.idle_s / 3600,
        "nodes_removed": told.removed_nodes,
        "cost_nodes": nodes,
        "cost_stalls": stalls,
        "cost": nodes + stalls,
    }


def line(told: Told) -> str:
    """One line of progress."""
    return ", ".join(f"{name} {value:.4g}" for name, value in _figures(told).items())


def page(told: Mapping[str, Told], options: Mapping[str, object]) -> str:
    """The table."""
    made = figures(told)
    names = list(next(iter(made.values())))
    lines = ["# A simulated week", "", ", ".join(f"{name} {value}" for name, value in options.items()), ""]
    lines += [f"| policy | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {name} | {' | '.join(_shown(one[figure]) for figure in names)} |" for name, one in made.items()]
    return "\n".join(lines) + "\n"


def draw(told: Mapping[str, Told], folder: Path) -> None:
    """Write week.png (nodes and sandboxes over time) and week-cost.png (what each policy costs)."""
    with plt.style.context("seaborn-v0_8-whitegrid"):
        _curves(told, folder / "week.png")
        _costs(told, folder / "week-cost.png")


def _curves(told: Mapping[str, Told], path: Path) -> None:
    figure, grid = plt.subplots(len(told), 1, figsize=(11, 2.1 * len(told)), sharex=True, sharey=True, squeeze=False)
    for axes, (name, one) in zip(grid[:, 0], told.items(), strict=True):
        days = [at_s / DAY_S for at_s, *_ in one.curve]
        axes.fill_between(days, [busy / 256 for _, _, busy, _, _ in one.curve], alpha=0.5, label="claimed")
        axes.plot(days, [nodes for _, nodes, *_ in one.curve], "k", linewidth=0.8, label="nodes")
        axes.plot(days, [waiting / 256 for *_, waiting in one.curve], "r", linewidth=0.6, label="waiting")
        axes.plot(days, [idle / 256 for _, _, _, idle, _ in one.curve], "g", linewidth=0.6, label="unclaimed")
        axes.set_title(name, fontsize=9)
    grid[0, 0].legend(fontsize=7, ncol=4)
    grid[-1, 0].set_xlabel("days; sandboxes are told in nodes of 256")
    _saved(figure, path)


def _costs(told: Mapping[str, Told], path: Path) -> None:
    made = figures(told)
    figure, axes = plt.subplots(figsize=(9, 0.6 * len(made) + 1.2))
    names = list(made)[::-1]
    nodes = [made[name]["cost_nodes"] for name in names]
    axes.barh(names, nodes, label="nodes")
    axes.barh(names, [made[name]["cost_stalls"] for name in names], left=nodes, label="GPUs that wait for rollouts")
    axes.set_xlabel(f"in all, at {NODE_HOUR} a node hour and {GPU_HOUR} a GPU hour")
    axes.legend()
    _saved(figure, path)


def _saved(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
