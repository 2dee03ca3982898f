"""What the chart gives Prometheus and Grafana: annotations on all parts, and the rest where it was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, ChartError, Manifest, named, of_kind, render

ALL = (
    "egress.enabled=true",
    "nodeAgent.enabled=true",
    "registry.enabled=true",
    "registry.persistence.enabled=false",
    "registry.peers.enabled=true",
    "registry.peers.metricsPort=5449",
)
# The part, the kind of its pods' owner, and the port at which it answers scrapes.
SCRAPED = {
    "gateway": ("Deployment", 8080),
    "controlplane": ("Deployment", 8081),
    "egress": ("Deployment", 8090),
    "dns": ("Deployment", 9153),
    "mirror": ("Deployment", 8086),
    "node": ("DaemonSet", 8444),
    "peers": ("DaemonSet", 5449),
}


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(*ALL)


def pod(manifests: list[Manifest], part: str) -> dict[str, Any]:
    template: dict[str, Any] = named(manifests, SCRAPED[part][0], f"rollbox-{part}")["spec"]["template"]
    return template


@pytest.mark.parametrize("part", SCRAPED)
def test_each_part_says_where_it_is_scraped(manifests: list[Manifest], part: str) -> None:
    told = pod(manifests, part)["metadata"]["annotations"]
    port = SCRAPED[part][1]
    assert {
        name.removeprefix("prometheus.io/"): v for name, v in told.items() if name.startswith("prometheus.io/")
    } == {
        "scrape": "true",
        "port": f"{port}",
        "path": "/metrics",
    }
    ports = [
        one["containerPort"] for container in pod(manifests, part)["spec"]["containers"] for one in container["ports"]
    ]
    assert port in ports


def test_annotations_can_be_left_out() -> None:
    manifests = render(*ALL, "metrics.annotations=false")
    told = [name for part in SCRAPED for name in pod(manifests, part)["metadata"].get("annotations", {})]
    assert not [name for name in told if name.startswith("prometheus.io/")]


def test_values_of_a_release_before_there_were_any_are_taken() -> None:
    assert of_kind(render("metrics=null"), "Deployment")


def test_without_being_asked_for_there_is_nothing_else(manifests: list[Manifest]) -> None:
    assert not of_kind(manifests, "PodMonitor")
    assert not of_kind(manifests, "PrometheusRule")
    assert not [one for one in of_kind(manifests, "ConfigMap") if "dashboard" in one["metadata"]["name"]]


def test_the_monitor_finds_the_port_of_each_part() -> None:
    on = render(*ALL, "metrics.podMonitor.enabled=true", "metrics.podMonitor.labels.release=watch")
    (monitor,) = of_kind(on, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "watch"
    (chosen,) = monitor["spec"]["selector"]["matchExpressions"]
    assert set(chosen["values"]) == SCRAPED.keys()
    names = {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]}
    for part, (_, port) in SCRAPED.items():
        template = pod(on, part)
        assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        ports = {one["name"]: one["containerPort"] for one in template["spec"]["containers"][0]["ports"]}
        # One of its ports, and only that, has a name that the monitor scrapes.
        assert [number for name, number in ports.items() if name in names] == [port], part


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_finds() -> None:
    made = render("metrics.dashboards.enabled=true", "metrics.dashboards.annotations.grafana_folder=rollbox")
    maps = [one for one in of_kind(made, "ConfigMap") if "dashboard" in one["metadata"]["name"]]
    files = {path.stem: path.read_text() for path in (CHART / "files/dashboards").glob("*.json")}
    assert len(files) == 7
    assert {one["metadata"]["name"] for one in maps} == {f"rollbox-dashboard-{name}" for name in files}
    for one in maps:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "rollbox"}
        ((name, text),) = one["data"].items()
        assert json.loads(text) == json.loads(files[name.removeprefix("rollbox-").removesuffix(".json")])


def test_the_rules_are_those_of_the_file_with_reachable_runbooks() -> None:
    made = render("metrics.rules.enabled=true", "metrics.rules.runbooks=https://wiki.example.com/rb/")
    (rule,) = of_kind(made, "PrometheusRule")
    file = (CHART / "files/rules.yaml").read_text()
    assert rule["spec"] == yaml.safe_load(file.replace("docs/runbooks/", "https://wiki.example.com/rb/"))
    (plain,) = of_kind(render("metrics.rules.enabled=true"), "PrometheusRule")
    assert plain["spec"] == yaml.safe_load(file)


def test_scrapers_reach_the_node_agents_metrics_and_nothing_else_of_them() -> None:
    made = render(*ALL, "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.team=watchers")
    ingress = named(made, "NetworkPolicy", "rollbox-node")["spec"]["ingress"]
    (watchers,) = [rule for rule in ingress if "namespaceSelector" in rule["from"][0]]
    assert watchers["ports"] == [{"port": 8444, "protocol": "TCP"}]


@pytest.mark.parametrize("wrong", ["metrics.podMonitor.interval=often", "metrics.dashboard=true"])
def test_what_is_unknown_is_refused(wrong: str) -> None:
    with pytest.raises(ChartError, match="metrics"):
        render(wrong)
