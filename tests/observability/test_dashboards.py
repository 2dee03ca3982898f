"""The dashboards by themselves: Prometheus' own parser takes every query, and each names only metrics of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.observability.dashboards import documents, panels
from tests.observability.table import METRICS, known_names, named
from tests.observability.test_rules import promtool
from tests.support.prometheus import why_no_prometheus

QUERIES = [
    (name, panel.title, query)
    for name, document in documents().items()
    for panel in panels(document)
    for query, _ in panel.queries
]


@pytest.mark.skipif(why_no_prometheus() is not None, reason=why_no_prometheus() or "")
async def test_promtool_takes_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"q{place}", "expr": query} for place, (_, _, query) in enumerate(QUERIES)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    status, said = await promtool("check", "rules", file)
    assert status == 0, said


def test_queries_name_only_metrics_of_the_table() -> None:
    assert not [one for one in QUERIES if not named(one[2]) <= known_names()]


def test_label_values_in_queries_are_those_of_the_table() -> None:
    """A misspelt value would make an empty panel."""
    values = {value for one in METRICS.sets.values() for value in one.values} | {"", ".*", "$namespace"}
    asked = {
        value
        for _, _, query in QUERIES
        for matcher in query.split('="')[1:] + query.split('=~"')[1:]
        for value in matcher.partition('"')[0].split("|")
    }
    assert asked <= values


def test_every_metric_but_a_few_is_drawn() -> None:
    """What nobody looks at is not worth a series: the rest is in rules, or tells of defects alone."""
    drawn = {name for _, _, query in QUERIES for name in named(query)}
    left = {metric.name for metric in METRICS.metrics if not any(name.startswith(metric.name) for name in drawn)}
    assert left == {
        "rollbox_annotations_behind",
        "rollbox_forged_addresses",
        "rollbox_gateway_route_feed_silence_seconds",
        "rollbox_quota_miscounts",
        "rollbox_readiness_pushes",
        "rollbox_store_feed_resyncs",
        "rollbox_store_rebuilds",
        "rollbox_store_unreadable_records",
    }
