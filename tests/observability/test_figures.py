"""What panels show of known figures: Prometheus itself works them out of the series that replicas would have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.observability.dashboards import Shown, documents, panels
from tests.observability.selectors import Selector, selectors, unguarded
from tests.observability.table import METRICS
from tests.observability.test_rules import ALERTS, GROUPS, promtool
from tests.support.prometheus import why_no_prometheus

needs_promtool = pytest.mark.skipif(why_no_prometheus() is not None, reason=why_no_prometheus() or "")
WINDOW: Final = "2m"
BOARDS: Final = {name: list(panels(document, window=WINDOW)) for name, document in documents().items()}
PANELS: Final = [(f"{name}: {panel.title}", panel) for name, shown in BOARDS.items() for panel in shown]
QUERIES: Final = [(title, query) for title, panel in PANELS for query, _ in panel.queries]
RATIOS: Final = [(title, query) for title, query in QUERIES if "/" in query]
GAUGES: Final = {metric.name: metric for metric in METRICS.metrics if metric.type == "gauge"}
# Labels of which one value is what usually happens, a thousand times as often as the others.
OUTCOMES: Final = {"cause", "code", "end", "fault", "outcome", "result", "status", "verdict"}
# Neither sums nor maxima: whether all is well, and the age of the oldest of all.
LEAST: Final = {"rollbox_store_up"}
OLDEST: Final = {"rollbox_sandbox_oldest_seconds"}


def of(title: str) -> str:
    """The first query of a panel."""
    return next(query for name, query in QUERIES if name == title)


async def worked_out(folder: Path, *tests: Mapping[str, Any]) -> None:
    """Has promtool compare what each test expects."""
    file = folder / "figures.test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "30s", "tests": list(tests)}))
    status, said = await promtool("test", "rules", file)
    assert status == 0, said


def tried(
    name: str, query: str, series: Mapping[str, str], expected: Sequence[tuple[str, float]], at: str = "10m"
) -> Mapping[str, Any]:
    """That a query gives these samples (labels, value) of series with a value every 30 s, rounded to thousandths."""
    samples = [{"labels": labels, "value": value} for labels, value in expected]
    return {
        "name": name,
        "interval": "30s",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [{"expr": f"round({query}, 0.001)", "eval_time": at, "exp_samples": samples}],
    }


def _flat(one: Selector) -> tuple[str, str]:
    """It stands still at what it has counted; a gauge at 0."""
    gauge = one.name in GAUGES
    return one.series(instance="a"), "0x20" if gauge else "7x20"


def test_each_ratio_leaves_out_where_there_is_nothing_to_divide_by() -> None:
    rules = [(rule.get("alert", rule.get("record")), rule["expr"]) for group in GROUPS for rule in group["rules"]]
    assert len(RATIOS) > 10
    assert [(title, rest) for title, query in [*QUERIES, *rules] for rest in unguarded(query)] == []
    assert [*unguarded("a / clamp_min(b, 1e-9)"), *unguarded("a / on () group_left () b")] == [
        "clamp_min(b, 1e-9)",
        "b",
    ]
    assert [*unguarded("a / on () group_left () (sum (b) > 0)"), *unguarded("(a / (b > 0)) / 60")] == []


@needs_promtool
async def test_no_ratio_shows_anything_of_an_installation_at_rest(tmp_path: Path) -> None:
    await worked_out(
        tmp_path,
        *(tried(title, query, dict(map(_flat, selectors(query))), []) for title, query in RATIOS),
    )


@needs_promtool
async def test_a_mean_is_that_of_the_phase_though_the_total_is_counted_elsewhere_and_later(tmp_path: Path) -> None:
    """Another replica takes the push that ends a start: `total` stands still while `start` moves, or is born late."""
    phase, labels = "rollbox_create_phase_seconds", 'namespace="n",start="cold"'
    here = {
        f'{phase}_sum{{{labels},phase="start",instance="a"}}': "0+6x20",
        f'{phase}_count{{{labels},phase="start",instance="a"}}': "0+3x20",
        f'{phase}_sum{{{labels},phase="total",instance="b"}}': "40x20",
        f'{phase}_count{{{labels},phase="total",instance="b"}}': "9x20",
    }
    # Scraped for the first time a minute ago: Prometheus extrapolates both figures to the window.
    born = {series: "_x18 8 14 20" if "_sum" in series else "_x18 4 7 10" for series in list(here)[:2]}
    # Of one start only, in the last scrape.
    once = {series: "0x19 31" if "_sum" in series else "0x19 1" for series in list(here)[:2]}
    query, shown = of("slow: A cold start by phase, mean"), '{phase="start"}'
    await worked_out(
        tmp_path,
        tried("elsewhere", query, here, [(shown, 2)]),
        tried("born late", query, born, [(shown, 2)]),
        tried("once", query, once, [(shown, 31)]),
    )


@needs_promtool
async def test_shares_stay_shares_where_series_are_born_in_the_window(tmp_path: Path) -> None:
    creates = 'rollbox_creates_total{namespace="n",instance="%s",pool="p",served="%s"}'
    warm, cold = creates % ("a", "warm"), creates % ("b", "none_ready")
    served = of("overview: Served warm")
    by_pool = of("pools: Served warm, by pool")
    ends = 'rollbox_sandbox_ends_total{namespace="n",instance="%s",cause="%s",masked="true",fault="platform"}'
    lost = {ends % ("a", "node_lost"): "_x18 1 2 3", ends % ("b", "sandbox_lost"): "5x20"}
    await worked_out(
        tmp_path,
        tried("half", served, {warm: "0+2x20", cold: "0+2x20"}, [("{}", 0.5)]),
        tried("born late, alone", served, {warm: "_x18 1 2 3", cold: "9x20"}, [("{}", 1)]),
        tried("by pool", by_pool, {warm: "_x18 1 2 3", cold: "9x20"}, [('{pool="p"}', 1)]),
        tried(
            "by code",
            of("overview: Masked samples by code"),
            lost,
            [('{cause="node_lost"}', 1), ('{cause="sandbox_lost"}', 0)],
        ),
    )


def _replicas(one: Selector) -> Mapping[str, str]:
    """Two replicas in each of two installations, each of which tells 3; of what one alone tells, the other has none."""
    metric = GAUGES[one.name]
    names = ("a",) if metric.leader else ("a", "b")
    return {
        one.series(namespace=namespace, instance=f"{namespace}{name}"): "3x20" for namespace in "nm" for name in names
    }


def _right(name: str) -> float:
    """What both installations have together."""
    if name in LEAST | OLDEST:
        return 3
    return 6 if GAUGES[name].whole or GAUGES[name].leader else 12


@needs_promtool
async def test_each_gauge_is_shown_of_all_replicas_and_once_of_what_all_of_them_tell(tmp_path: Path) -> None:
    gauges = [
        (title, query, asked[0])
        for title, query in QUERIES
        if "/" not in query and (asked := [*selectors(query)]) and asked[0].name in GAUGES
    ]
    assert len(gauges) > 30
    await worked_out(
        tmp_path,
        *(tried(title, f"sum({query})", _replicas(one), [("{}", _right(one.name))]) for title, query, one in gauges),
    )


@needs_promtool
async def test_two_gateways_at_two_control_planes_are_two(tmp_path: Path) -> None:
    feeds = {f'rollbox_route_feed_subscribers{{namespace="n",instance="{name}"}}': "1x20" for name in "ab"}
    await worked_out(tmp_path, tried("two", of("overview: Connected gateways"), feeds, [("{}", 2)]))


@needs_promtool
async def test_an_alert_tells_how_many_of_all_replicas(tmp_path: Path) -> None:
    counted = {
        "RollboxSandboxesNotStopped": "rollbox_sandboxes_not_stopped",
        "RollboxOutOfRoom": "rollbox_starts_unplaced",
    }
    await worked_out(
        tmp_path,
        *(
            tried(
                alert,
                ALERTS[alert]["expr"].strip(),
                {f'{gauge}{{namespace="n",instance="{name}"}}': "2x20" for name in "ab"},
                [('{namespace="n"}', 4)],
            )
            for alert, gauge in counted.items()
        ),
    )


@needs_promtool
async def test_ended_sandboxes_hide_no_live_ones(tmp_path: Path) -> None:
    states = {
        f'rollbox_sandboxes{{namespace="n",instance="a",state="{state}"}}': value
        for state, value in (("running", "12x20"), ("starting", "1x20"), ("ended", "40000x20"))
    }
    await worked_out(
        tmp_path,
        tried(
            "live",
            of("overview: Sandboxes by state"),
            states,
            [('{state="running"}', 12), ('{state="starting"}', 1)],
        ),
        tried("there", of("pools: Sandboxes"), states, [("{}", 13)]),
    )


def _grouped(panel: Shown) -> set[str]:
    return {
        label.strip()
        for query, _ in panel.queries
        for by in re.findall(r"\bby \(([^)]*)\)", query)
        for label in by.split(",")
    }


def _counts(panel: Shown) -> bool:
    """Whether it shows how often things happen."""
    return panel.unit == "ops" and panel.kind == "timeseries"


def test_what_seldom_happens_is_seen_beside_what_often_does() -> None:
    """Failures are a line at 0, or no line in a stack, where the axis is as high as successes are many."""
    outcomes = [(title, panel) for title, panel in PANELS if _counts(panel) and _grouped(panel) & OUTCOMES]
    assert len(outcomes) > 20
    assert [title for title, panel in outcomes if not panel.log or panel.stacked] == []


def test_ended_sandboxes_are_in_no_panel_with_those_in_other_states() -> None:
    of_states = [
        (title, query) for title, query in QUERIES if re.search(r"rollbox_sandbox(es|_oldest_seconds)\{", query)
    ]
    assert len(of_states) >= 4
    told = re.compile(r'state(="|=~"|!="ended")')
    assert [title for title, query in of_states if not told.search(query) or "|ended" in query] == []
