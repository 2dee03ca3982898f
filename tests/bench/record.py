"""One measured figure with its provenance; pure but for `commit` and `save`."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rollbox.bench.machine import hardware
from rollbox.bench.sample import percentile
from tests.bench.declared import declared

BUILD = Path(__file__).parent.parent.parent / "build" / "bench"
RUNS_KEPT = 9
TARGET = re.compile(r"(?P<left>value|ratio) (?P<relation><=|>=) (?P<base>baseline \+ )?(?P<number>[0-9.]+)")


def distribution(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99, max and n of one sample."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {**{name: percentile(values, share) for name, share in shares.items()}, "max": max(values), "n": len(values)}


def of_rounds(values: Sequence[float]) -> dict[str, float]:
    """The values of some rounds in turn, one each: their median and their range."""
    return {"p50": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


@dataclass(frozen=True)
class Baseline:
    """What the figure is held against, from the same run.

    Attributes:
        what: its name, as a reader would say it.
        value: in the unit of the figure.
        distribution: of the baseline's own sample, if it is one.
    """

    what: str
    value: float
    distribution: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One figure.

    Attributes:
        figure: its name.
        value: in `unit`.
        unit: "ms", "MiB", ...
        conditions: what a reader needs to measure it again.
        baseline: what it is held against.
        faster_is: "smaller" when the ratio is baseline/value (times), "larger" when it is value/baseline.
        distribution: of the sample behind the value.
        target: "value|ratio <=|>= [baseline + ]NUMBER", or empty for a figure that is only told.
        statistic: how one run comes to the value.
    """

    figure: str
    value: float
    unit: str
    conditions: str
    baseline: Baseline | None = None
    faster_is: str = "smaller"
    distribution: Mapping[str, float] = field(default_factory=dict)
    target: str = ""
    statistic: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the baseline; None without one."""
        if self.baseline is None or not self.value or not self.baseline.value:
            return None
        smaller = self.faster_is == "smaller"
        return self.baseline.value / self.value if smaller else self.value / self.baseline.value

    @property
    def met(self) -> bool | None:
        """Whether the target holds; None without a target.

        Raises:
            ValueError: the target is not in the form that this class reads.
        """
        if not self.target:
            return None
        match = TARGET.fullmatch(self.target)
        if match is None:
            raise ValueError(f"target {self.target!r} is not of the form {TARGET.pattern}")
        left = self.value if match["left"] == "value" else self.ratio
        if left is None or (match["base"] and self.baseline is None):
            raise ValueError(f"target {self.target!r} needs a baseline")
        bound = float(match["number"]) + (self.baseline.value if match["base"] and self.baseline else 0.0)
        return left <= bound if match["relation"] == "<=" else left >= bound


def commit() -> str:
    """The commit that is measured, marked where files differ from it; "unknown" outside a checkout."""
    described = ("git", "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*")
    found = subprocess.run(described, cwd=BUILD.parent.parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def save(scenario: str, records: Sequence[Record], versions: Mapping[str, str]) -> list[Record]:
    """Add a run to build/bench/<scenario>.json, which keeps the newest `RUNS_KEPT` of them.

    Returns:
        The records with their declared statistics and targets.

    Raises:
        KeyError: a figure is not declared in `figures.toml`.
    """
    found = [(record, declared(scenario, record.figure)) for record in records]
    judged = [replace(record, statistic=what.statistic, target=what.target) for record, what in found]
    run = {
        "measured": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": commit(),
        "hardware": hardware(),
        "versions": dict(versions),
        "figures": [{**asdict(r), "ratio": r.ratio, "met": r.met} for r in judged],
    }
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{scenario}.json"
    before = json.loads(path.read_text()) if path.is_file() else []
    path.write_text(json.dumps([*before, run][-RUNS_KEPT:], indent=1) + "\n")
    return judged
