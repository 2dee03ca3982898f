"""Read metrics.toml, checked: known fields, names that fit their type and unit, labels of known sets."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "metrics.toml"
PARTS = ("controlplane", "gateway", "egress", "mirror", "snapshotter", "mounts", "node", "peers")
TYPES = ("counter", "gauge", "histogram")
UNITS = ("", "seconds", "bytes")
# What declared names are told as that are too many.
OTHERS = "~other"


@dataclass(frozen=True)
class LabelSet:
    """The values that a label may have.

    Attributes:
        values: all that the table knows, error codes included.
        codes: error codes are among them.
        declared: what operators declare: more values than the table knows.
        doc: what they mean.
    """

    values: Sequence[str]
    codes: bool = False
    declared: str = ""
    doc: str = ""


@dataclass(frozen=True)
class Metric:
    """One row of the table; see its head."""

    name: str
    part: str
    type: str
    help: str
    unit: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: str = ""
    whole: bool = False
    leader: bool = False
    exemplar: bool = False

    @property
    def exposed(self) -> str:
        """Its name in queries, without the suffixes of histograms."""
        return f"{self.name}_total" if self.type == "counter" else self.name


@dataclass(frozen=True)
class MetricTable:
    """The whole table."""

    metrics: Sequence[Metric]
    sets: Mapping[str, LabelSet]
    buckets: Mapping[str, Sequence[float]]

    def of(self, part: str) -> Sequence[Metric]:
        """The metrics of one part."""
        return [metric for metric in self.metrics if metric.part == part]

    def sets_of(self, *parts: str) -> Mapping[str, LabelSet]:
        """The label sets that these parts use, in the order of the table."""
        used = {name for part in parts for metric in self.of(part) for name in metric.labels.values()}
        return {name: one for name, one in self.sets.items() if name in used}


def read_metrics(codes: Sequence[str], source: Path = SOURCE) -> MetricTable:
    """Return the table.

    Args:
        codes: the codes of errors.toml.
        source: the file.

    Raises:
        SystemExit: a row is not valid.
    """
    read = tomllib.loads(source.read_text())
    sets = {name: _set(name, row, codes) for name, row in read["set"].items()}
    metrics = [_metric(name, row) for name, row in read["metric"].items()]
    table = MetricTable(metrics, sets, read["buckets"])
    for metric in metrics:
        _check(metric, table)
    unused = sets.keys() - {name for metric in metrics for name in metric.labels.values()}
    if unused:
        raise SystemExit(f"metrics.toml: no metric uses {', '.join(sorted(unused))}")
    return table


def _set(name: str, row: Mapping[str, Any], codes: Sequence[str]) -> LabelSet:
    if not row.keys() <= {"values", "codes", "declared", "doc"} or "values" not in row:
        raise SystemExit(f"metrics.toml: set {name}: fields are {sorted(row)}")
    values = [*row["values"], *(codes if row.get("codes") else ()), *((OTHERS,) if row.get("declared") else ())]
    return LabelSet(values, row.get("codes", False), row.get("declared", ""), row.get("doc", ""))


def _metric(name: str, row: Mapping[str, Any]) -> Metric:
    try:
        return Metric(name, **row)
    except TypeError as error:
        raise SystemExit(f"metrics.toml: {name}: {error}") from error


def _check(metric: Metric, table: MetricTable) -> None:
    prefix = {"controlplane": "rollbox_", "mounts": "rollbox_snapshotter_"}.get(metric.part, f"rollbox_{metric.part}_")
    wrong = {
        "unknown part": metric.part not in PARTS,
        "unknown type": metric.type not in TYPES,
        "unknown unit": metric.unit not in UNITS,
        f"its name does not begin with {prefix}": not metric.name.startswith(prefix),
        "its name does not end with its unit": bool(metric.unit) and not metric.name.endswith(f"_{metric.unit}"),
        "a name ends with no _total in this table": metric.name.endswith("_total"),
        "only a histogram has buckets, and each has": (metric.type == "histogram") != bool(metric.buckets),
        "unknown buckets": metric.buckets not in {"", *table.buckets},
        "unknown label set": not set(metric.labels.values()) <= table.sets.keys(),
        "help is one sentence": not metric.help.endswith("."),
    }
    for why, holds in wrong.items():
        if holds:
            raise SystemExit(f"metrics.toml: {metric.name}: {why}")
