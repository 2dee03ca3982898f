"""The report of a simulation: JSON for programs, a page for people, and what was aimed at."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.scale.phases import Simulation

LEAST_OF_BARE = 0.8
# How far the memory of a control plane may grow from the second quarter of the fill to the last, beside the sandboxes'.
TARGETS = {
    "fill: rate against bare pods": f">= {LEAST_OF_BARE}",
    "fill: creates that failed": "0",
    "execs at once: not answered, or by another sandbox": "0",
    "upgrade: calls that failed": "0",
    "nodes lost: calls not told of it": "0",
    "nodes lost: creates that failed on nodes of the scaler": "0",
    "scaler: nodes that stayed without need": "0",
}


def targets_met(report: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each target was met, of the phases that have run."""
    met: dict[str, bool] = {}
    if "of_bare" in (fill := report.get("fill", {})):
        met["fill: rate against bare pods"] = fill["of_bare"] >= LEAST_OF_BARE
        met["fill: creates that failed"] = fill["failed"] == 0
    if rounds := [figures for name, figures in report.items() if name.startswith("execs")]:
        bad = sum(one["failed"] + one["answered by another sandbox"] for one in rounds)
        met["execs at once: not answered, or by another sandbox"] = bad == 0
    if "failures" in (upgrade := report.get("upgrade", {})):
        met["upgrade: calls that failed"] = not upgrade["failures"]
    if "ends" in (lost := report.get("nodes lost", {})):
        met["nodes lost: calls not told of it"] = "exited" not in lost["ends"]
    if "nodes_added" in (refill := report.get("refill", {})):
        good = refill["nodes_added"] > 0 and refill["failed"] == 0
        met["nodes lost: creates that failed on nodes of the scaler"] = good
    if "nodes go" in report:
        met["scaler: nodes that stayed without need"] = "gone_s" in report["nodes go"]
    return met


def verdict(report: Mapping[str, Any]) -> int:
    """The exit status: 0 when all targets were met."""
    met = targets_met(report)
    return 0 if met.keys() == TARGETS.keys() and all(met.values()) else 1


def write(simulation: Simulation, options: argparse.Namespace, folder: Path) -> None:
    """Write report.json and report.md."""
    met = targets_met(simulation.report)
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[2]:.1f} over 15 minutes",
        "options": vars(options),
    }
    phases = [{"name": name, "began_s": began_s, "ended_s": ended_s} for name, began_s, ended_s in simulation.phases]
    used = simulation.samples.rows[-1][2] if simulation.samples.rows else {}
    parts = {name: {"cpu_s": one.cpu_s, "mib": one.resident_bytes / 2**20} for name, one in used.items()}
    whole = {"about": about, "phases": phases, "figures": simulation.report, "parts": parts, "targets_met": met}
    (folder / "report.json").write_text(json.dumps(whole, indent=1))
    (folder / "report.md").write_text(page(whole))


def page(whole: Mapping[str, Any]) -> str:
    """The report for people."""
    about = whole["about"]
    lines = ["# Simulation", "", f"{about['date']}, commit {about['commit']}; {about['machine']}.", ""]
    lines += ["| target | wanted | met |", "|---|---|---|"]
    for target, wanted in TARGETS.items():
        met = whole["targets_met"].get(target)
        lines.append(f"| {target} | {wanted} | {'not measured' if met is None else 'yes' if met else 'NO'} |")
    for name, figures in whole["figures"].items():
        lines += ["", f"## {name}", "", "| figure | value |", "|---|---|"]
        lines += [f"| {figure} | {_shown(value)} |" for figure, value in figures.items()]
    lines += [
        *_costs(whole["figures"]),
        "",
        "## parts at the end",
        "",
        "| part | processor seconds | MiB |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {one['cpu_s']:.1f} | {one['mib']:.0f} |" for name, one in whole["parts"].items()]
    return "\n".join(lines) + "\n"


def _costs(figures: Mapping[str, Any]) -> list[str]:
    """Processor milliseconds of each part for a bare pod and for a sandbox: what a busy machine changes least."""
    bare, fill = figures.get("bare pods", {}), figures.get("fill", {})
    if not bare.get("pods") or not fill.get("answered"):
        return []
    each = {
        name: (1000 * bare["cpu_s"].get(name, 0.0) / bare["pods"], 1000 * one / fill["answered"])
        for name, one in fill["cpu_s"].items()
    }
    lines = ["", "## processor time", "", "| part | ms a bare pod | ms a sandbox |", "|---|---|---|"]
    lines += [f"| {name} | {one:.1f} | {other:.1f} |" for name, (one, other) in each.items()]
    whole = [sum(pair[at] for pair in each.values()) for at in (0, 1)]
    return [*lines, f"| all | {whole[0]:.1f} | {whole[1]:.1f} |"]


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def _commit() -> str:
    told = subprocess.run(("git", "rev-parse", "--short=12", "HEAD"), capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"
