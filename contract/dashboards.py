"""The dashboards as Grafana's JSON, of the panels in boards/."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as grafana
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef, VariableRefresh

from boards import BOARDS
from boards.model import Board, Panel

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
SELECTOR = 'namespace=~"$namespace"'
WINDOW = "$__rate_interval"
# Of Grafana's 24 columns.
WIDTHS = {"stat": 4, "timeseries": 8}
HEIGHTS = {"stat": 4, "timeseries": 8}
# Once in a quarter of an hour.
SMALL_RATE = 0.001


def documents() -> dict[str, str]:
    """Name -> JSON of every dashboard."""
    return {board.name: f"{JSONEncoder(sort_keys=True, indent=2).encode(_board(board).build())}\n" for board in BOARDS}


def _board(board: Board) -> grafana.Dashboard:
    made = (
        grafana.Dashboard(board.title)
        .uid(f"rollbox-{board.name}")
        .description(board.what)
        .tags(["rollbox"])
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .with_variable(grafana.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            grafana.QueryVariable("namespace")
            .label("Namespace of the installation")
            .datasource(SOURCE)
            .query("label_values(rollbox_store_up, namespace)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            # Also what has no such label, because it is scraped without Kubernetes.
            .all_value(".*")
        )
        .link(grafana.DashboardLink("rollbox").type(DashboardLinkType.DASHBOARDS).tags(["rollbox"]).as_dropdown(True))
    )
    for row in board.rows:
        made = made.with_row(grafana.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_stat(panel) if panel.kind == "stat" else _series(panel))
    return made


def _stat(panel: Panel) -> stat.Panel:
    made = stat.Panel().title(panel.title).description(panel.what).unit(panel.unit).datasource(SOURCE)
    made = made.span(WIDTHS["stat"]).height(HEIGHTS["stat"])
    for query in _queries(panel):
        made = made.with_target(query)
    return made


def _series(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
    made = timeseries.Panel().title(panel.title).description(panel.what).unit(panel.unit).datasource(SOURCE)
    made = made.span(WIDTHS["timeseries"]).height(HEIGHTS["timeseries"]).min(0)
    made = made.legend(legend.show_legend(True)).tooltip(tooltip)
    if panel.most is not None:
        made = made.max(panel.most)
    if panel.log:
        # Symmetric: a rate of 0 is on it too.
        scale = common.ScaleDistributionConfig().type(ScaleDistribution.SYMLOG).log(10).linear_threshold(SMALL_RATE)
        made = made.scale_distribution(scale)
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(25)
    for query in _queries(panel):
        made = made.with_target(query)
    return made


def _queries(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery()
        .expr(query.expr.replace("$N", SELECTOR).replace("$W", WINDOW))
        .legend_format(query.legend or panel.title)
        .ref_id(chr(ord("A") + place))
        for place, query in enumerate(panel.queries)
    ]
