"""What contract/metrics.toml says, for tests: names as Prometheus has them, and whether a scrape fits."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from typing import Final

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from controlplane.errors import TABLE
from tests.support.installed import ROOT

sys.path.append(str(ROOT / "contract"))

from metric_table import Metric, MetricTable, read_metrics

METRICS: Final[MetricTable] = read_metrics([*TABLE])
_SUFFIXES: Final[Mapping[str, Collection[str]]] = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABELS: Final = re.compile(r"\{[^}]*\}|\"[^\"]*\"|'[^']*'")
_GROUPING: Final = re.compile(r"\b(by|on|ignoring|group_left|without)\s*\([^)]*\)")


def names_of(metric: Metric) -> Collection[str]:
    """The names of its series."""
    return [metric.name + suffix for suffix in _SUFFIXES[metric.type]]


def known_names() -> set[str]:
    """The names of all series of the table."""
    return {name for metric in METRICS.metrics for name in names_of(metric)}


def named(expression: str) -> set[str]:
    """The names of metrics in an expression."""
    bare = _GROUPING.sub(" ", _LABELS.sub(" ", expression))
    return {name for name in _NAME.findall(bare) if name.startswith(("rollbox_", "kubelet_", "namespace"))}


def misfits(part: str, text: str) -> list[str]:
    """What a scrape of a part has otherwise than the table: families, types, texts, labels and their values."""
    parse = parse_openmetrics if text.rstrip().endswith("# EOF") else parse_text
    there = {family.name.removesuffix("_total"): family for family in parse(text)}
    ours = {name: family for name, family in there.items() if name.startswith("rollbox_")}
    rows = {metric.name: metric for metric in METRICS.of(part)}
    found = [f"{name} is not in the table" for name in ours.keys() - rows.keys()]
    found += [f"{name} is not there" for name in rows.keys() - ours.keys()]
    for name in rows.keys() & ours.keys():
        row, family = rows[name], ours[name]
        if (family.type, family.documentation.rstrip(".")) != (row.type, row.help.rstrip(".")):
            found.append(f"{name} is {family.type}: {family.documentation}")
        for sample in family.samples:
            found += _strange(row, sample.labels)
    return sorted(set(found))


def _strange(row: Metric, labels: Mapping[str, str]) -> list[str]:
    names = labels.keys() - {"le"}
    if names != row.labels.keys():
        return [f"{row.name} has the labels {sorted(names)}"]
    sets = {label: METRICS.sets[row.labels[label]] for label in names}
    return [
        f'{row.name} has {label}="{labels[label]}"'
        for label, one in sets.items()
        if labels[label] not in one.values and not one.declared
    ]
