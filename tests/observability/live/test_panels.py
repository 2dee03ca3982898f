"""No panel is empty where the real stack, with all its parts, has a load; and each dashboard is drawn."""

from __future__ import annotations

import re
import time

import pytest

from tests.observability.dashboards import documents, panels
from tests.observability.live.conftest import Watched
from tests.observability.live.drawing import Drawn, draw
from tests.observability.live.load import load
from tests.observability.live.scraping import Prometheus, Series
from tests.observability.table import METRICS, named, names_of
from tests.support.installed import ROOT

PICTURES = ROOT / "build/dashboards"
LOAD_S, STEP_S = 60.0, 2.0
# Of parts that the release has not.
WITHOUT = {
    "pools: Nodes by pool: {{node_pool}} {{what}}": "a scaler",
    "pools: Steps: {{node_pool}} {{step}}": "a scaler",
    "pools: Failures of node providers: {{node_pool}} {{cause}}": "a scaler",
    # What it tells itself; the control plane tells of the same board what it sees of it.
    **{
        f"egress: {one.title}: {name}": "egress"
        for one in panels(documents()["egress"])
        for query, name in one.queries
        if named(query) & {series for metric in METRICS.of("egress") for series in names_of(metric)}
    },
}


@pytest.mark.timeout(900)
async def test_no_panel_is_empty_under_a_load(watched: Watched) -> None:
    begin_s = time.time()
    await load(watched.place, LOAD_S)
    empty = {*await _drawn(watched.prometheus, watched.place.stack.namespace, begin_s)}
    lacking, there_after_all = empty - WITHOUT.keys(), WITHOUT.keys() - empty
    assert (lacking, there_after_all) == (set(), set())


async def _drawn(prometheus: Prometheus, namespace: str, begin_s: float) -> list[str]:
    """Draws every dashboard; the queries that no series answered, as `DASHBOARD: PANEL: LEGEND`."""
    empty, end_s = [], time.time()
    for name, document in documents().items():
        drawn = []
        for panel in panels(document, namespace):
            series: list[tuple[str, Series]] = []
            for query, legend in panel.queries:
                found = await prometheus.range(query, begin_s, end_s, STEP_S)
                series += [(_legend(legend, one), one) for one in found]
                if not found:
                    empty.append(f"{name}: {panel.title}: {legend or query}")
            drawn.append(Drawn(panel, series))
        draw(document["title"], drawn, begin_s, PICTURES / f"{name}.png")
    return empty


def _legend(legend: str, series: Series) -> str:
    """As Grafana fills it in: `{{label}}`, empty where the series has no such label."""
    return re.sub(r"{{(\w+)}}", lambda found: series.labels.get(found[1], ""), legend)
