"""Fill a real node with live gVisor sandboxes, each proven by a command; writes build/scale/density.json and .md.

python -m tests.scale.density               256 on the node of `make cluster`
python -m tests.scale.density --count 32    fewer
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbox import Client, RetryPolicy, Sandbox
from tests.scale import node_truth
from tests.scale.burst import Outcomes, burst
from tests.support.images import ON_CLUSTER
from tests.support.installed import (
    ASKS_LITTLE,
    ONE_OF_EACH,
    RELEASE,
    Installed,
    installed,
    kubectl,
    objects,
    why_no_cluster,
)

BUILD = Path(__file__).parent.parent.parent / "build/scale"
# What is set aside for each must not be what bounds them: the machine's memory is.
VALUES = (
    "runtimeClass.overhead.cpu=1m",
    "runtimeClass.overhead.memory=8Mi",
    *ASKS_LITTLE,
    *ONE_OF_EACH,
)
FEW = 16
# Execs of one measurement, so many at once.
EXECS, AT_ONCE = 1000, 4
START_TIMEOUT_S = 1500.0
MOST_SLOWER = 3.0
LABELS = {"run": "density"}
QUIET_S = 20.0


async def measured(product: Installed, count: int) -> dict[str, Any]:
    """All figures. Cost: about a quarter of an hour for 256."""
    figures: dict[str, Any] = {"count": count}
    async with Client(product.url, product.api_key, retries=RetryPolicy(tries=10, budget_s=300)) as client:
        try:
            before_mib = node_truth.used_mib()
            sandboxes = (await _filled(client, min(FEW, count))).answers
            figures["execs at 16"] = (await _execs(sandboxes)).figures()
            began_s, busy_s = time.monotonic(), node_truth.busy_s()
            outcomes = await _filled(client, count - len(sandboxes))
            sandboxes += outcomes.answers
            figures["fill"] = _fill(outcomes, time.monotonic() - began_s, node_truth.busy_s() - busy_s)
            proven = await burst(_proven, sandboxes, 8)
            figures["proven"] = {"alive": sum(proven.answers), **proven.figures()}
            figures[f"execs at {count}"] = (await _execs(sandboxes)).figures()
            figures["node"] = await _node(len(sandboxes), before_mib, product)
            # The removal takes minutes, and a node that is this full may fail in it.
            written(figures)
        finally:
            began_s = time.monotonic()
            await client.delete(labels=LABELS, wait=True, wait_timeout=600)
            figures["delete_s"] = time.monotonic() - began_s
    return figures


def targets_met(figures: Mapping[str, Any]) -> dict[str, bool]:
    """Whether what was aimed at was met."""
    few, many = figures["execs at 16"], figures[f"execs at {figures['count']}"]
    return {
        f"{figures['count']} live, each proven by a command": figures["proven"]["alive"] == figures["count"],
        f"exec p99 at most {MOST_SLOWER:g} times that at {FEW}": many["p99_ms"] <= MOST_SLOWER * few["p99_ms"],
    }


def written(figures: Mapping[str, Any]) -> dict[str, bool]:
    """Writes the reports; returns whether what was aimed at was met."""
    met = targets_met(figures)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "density.json").write_text(json.dumps({"figures": figures, "targets_met": met}, indent=1))
    (BUILD / "density.md").write_text(page(figures, met))
    return met


def page(figures: Mapping[str, Any], met: Mapping[str, bool]) -> str:
    """The report for people."""
    lines = ["# Density", "", "| target | met |", "|---|---|"]
    lines += [f"| {target} | {'yes' if one else 'NO'} |" for target, one in met.items()]
    lines += ["", "| figure | value |", "|---|---|", *_rows("", figures)]
    return "\n".join(lines) + "\n"


def _rows(prefix: str, figures: Mapping[str, Any]) -> list[str]:
    rows: list[str] = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            rows += _rows(f"{prefix}{name}: ", value)
        else:
            rows.append(
                f"| {prefix}{name} | {value:.4g} |" if isinstance(value, float) else f"| {prefix}{name} | {value} |"
            )
    return rows


def _fill(outcomes: Outcomes[Sandbox], took_s: float, busy_s: float) -> dict[str, Any]:
    """The rate, and what bounds it: as many starts as the cores have time for, by what one has cost."""
    started, cores = len(outcomes.answers), os.cpu_count() or 1
    bound = cores * started / busy_s if busy_s else 0.0
    thirds = [sum(1 for at_s in outcomes.at_s if at_s <= took_s * part / 3) for part in (1, 2, 3)]
    return {
        **outcomes.figures(),
        "started in each third of the time": [thirds[0], thirds[1] - thirds[0], thirds[2] - thirds[1]],
        "processor seconds for each": busy_s / max(1, started),
        "starts a second that the cores would give": bound,
        "share of that": outcomes.rate / bound if bound else 0.0,
    }


async def _filled(client: Client, count: int) -> Outcomes[Sandbox]:
    """So many more; all creates are made at once: bounding them is the product's part."""

    async def create(_: int) -> Sandbox:
        options: Any = {"cpu": (0.001, 2), "memory": ("16Mi", "256Mi"), "labels": LABELS, "ttl": 7200}
        return await client.create(ON_CLUSTER, start_timeout=START_TIMEOUT_S, **options)

    return await burst(create, range(count), max(1, count))


async def _execs(sandboxes: Sequence[Sandbox]) -> Outcomes[None]:
    async def run(number: int) -> None:
        await sandboxes[number % len(sandboxes)].exec(["true"], check=True, timeout=120)

    return await burst(run, range(EXECS), AT_ONCE)


async def _proven(sandbox: Sandbox) -> bool:
    """Whether the sandbox itself answers: its host name is its id."""
    result = await sandbox.exec(["cat", "/etc/hostname"], check=True, timeout=120)
    return result.stdout.strip() == sandbox.id


async def _node(count: int, before_mib: float, product: Installed) -> dict[str, Any]:
    """What the node carries while nothing is asked of the sandboxes."""
    await asyncio.sleep(5)
    forks, busy_s = node_truth.forks(), node_truth.busy_s()
    await asyncio.sleep(QUIET_S)
    forks, busy_s = node_truth.forks() - forks, node_truth.busy_s() - busy_s
    began_s = time.monotonic()
    name = (await objects("nodes"))[0]["metadata"]["name"]
    summary = json.loads(await kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/stats/summary"))
    told = [pod for pod in summary["pods"] if pod["podRef"]["namespace"] == product.sandboxes]
    parts = await asyncio.to_thread(node_truth.processes)
    return {
        "memory of the machine for each, MiB": (node_truth.used_mib() - before_mib) / count,
        **{
            f"{part} for each, MiB": parts[part]["pss_mib"] / count
            for part in ("shim", "sentry", "gofer")
            if part in parts
        },
        "processes made a second, idle": forks / QUIET_S,
        "cores busy, idle": busy_s / QUIET_S,
        "kubelet's summary, s": time.monotonic() - began_s,
        "kubelet's summary, sandboxes": len(told),
        "parts": parts,
        "kernel": await asyncio.to_thread(node_truth.kernel),
    }


async def run(count: int) -> int:
    """Measure on a release of its own; 1 when a target was missed."""
    if (reason := why_no_cluster()) is not None:
        print(f"There is no node to fill: {reason}.", file=sys.stderr)
        return 1
    async with installed(RELEASE, *VALUES) as product:
        figures = await measured(product, count)
    met = written(figures)
    print(page(figures, met))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.scale.density")
    parser.add_argument("--count", type=int, default=256)
    raise SystemExit(asyncio.run(run(parser.parse_args().count)))
