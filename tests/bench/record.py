"""One measured figure with its provenance; pure but for `hardware` and `save`."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

BUILD = Path(__file__).parent.parent.parent / "build" / "bench"
TARGET = re.compile(r"(?P<left>value|ratio) (?P<relation><=|>=) (?P<base>baseline \+ )?(?P<number>[0-9.]+)")


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `share` in 0..1.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def distribution(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99, max and n of one sample."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {**{name: percentile(values, share) for name, share in shares.items()}, "max": max(values), "n": len(values)}


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
        target: "value|ratio <=|>= [baseline + ]NUMBER", or empty for a figure that is only told.
        conditions: what a reader needs to measure it again.
        baseline: what it is held against.
        faster_is: "smaller" when the ratio is baseline/value (times), "larger" when it is value/baseline.
        distribution: of the sample behind the value.
    """

    figure: str
    value: float
    unit: str
    target: str
    conditions: str
    baseline: Baseline | None = None
    faster_is: str = "smaller"
    distribution: Mapping[str, float] = field(default_factory=dict)

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


def hardware() -> dict[str, str | int]:
    """Processor, cores, memory and kernel of this machine."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_mib": memory_bytes >> 20,
        "kernel": platform.release(),
    }


def save(scenario: str, records: Sequence[Record], versions: Mapping[str, str]) -> Path:
    """Write build/bench/<scenario>.json; the path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    machine = hardware()
    rows = [
        {**asdict(r), "ratio": r.ratio, "met": r.met, "hardware": machine, "versions": dict(versions)} for r in records
    ]
    path = BUILD / f"{scenario}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n")
    return path
