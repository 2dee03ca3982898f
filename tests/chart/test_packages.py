"""The package cache in the chart: absent by default; where enabled, egress alone reaches it, and it nothing inside."""

from typing import Any

import pytest

from tests.chart.test_images import environment
from tests.observability.table import METRICS
from tests.support.helm import ChartError, Manifest, named, render

ON = ("egress.enabled=true", "egress.packages.enabled=true")
NAME = "rollbox-packages"


def _container(manifests: list[Manifest]) -> dict[str, Any]:
    (container,) = named(manifests, "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
    return dict(container)


def _settings(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container["env"]}


@pytest.mark.parametrize("values", [(), ("egress.enabled=true",), ("egress.packages.enabled=true",)])
def test_nothing_of_it_is_there_where_it_or_egress_is_not_enabled(values: tuple[str, ...]) -> None:
    manifests = render(*values)
    assert "rollbox-packages" not in str(manifests)
    assert "PACKAGES" not in str(manifests)


def test_egress_the_control_plane_and_the_cache_agree() -> None:
    manifests = render(*ON)
    told = _settings(_container(manifests))
    names = [one.partition("=")[0] for one in told["ROLLBOX_PACKAGES_INDEXES"].split(",")]
    assert environment(manifests)["EGRESS_PACKAGES"].split(",") == sorted(names)
    assert "pypi.org=https://pypi.org" in told["ROLLBOX_PACKAGES_INDEXES"].split(",")
    (egress,) = named(manifests, "Deployment", "rollbox-egress")["spec"]["template"]["spec"]["containers"]
    (port,) = named(manifests, "Service", NAME)["spec"]["ports"]
    url = f"http://{NAME}.{named(manifests, 'Deployment', NAME)['metadata'].get('namespace', 'rollbox')}"
    assert _settings(egress)["ROLLBOX_EGRESS_PACKAGES_URL"] == f"{url}.svc.cluster.local:{port['port']}"


def test_the_indexes_that_the_chart_names_are_told_apart_in_metrics() -> None:
    told = _settings(_container(render(*ON)))["ROLLBOX_PACKAGES_INDEXES"].split(",")
    assert {one.partition("=")[0] for one in told} == {*METRICS.sets["packages_index"].values} - {"other"}


def test_a_mirror_of_ones_own_takes_the_place_of_an_index() -> None:
    told = _settings(_container(render(*ON, r"egress.packages.indexes.pypi\.org=http://mirror.test:8081/pypi")))
    assert "pypi.org=http://mirror.test:8081/pypi" in told["ROLLBOX_PACKAGES_INDEXES"].split(",")


def test_egress_alone_reaches_it_and_it_reaches_what_egress_reaches_outside() -> None:
    manifests = render(*ON, "egress.blockedCidrs[0]=203.0.113.0/24", "egress.allowedPrivateCidrs[0]=10.9.0.0/16")
    spec = named(manifests, "NetworkPolicy", NAME)["spec"]
    (way,) = spec["ingress"]
    assert [one["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for one in way["from"]] == ["egress"]
    of_egress = named(manifests, "NetworkPolicy", "rollbox-egress")["spec"]["egress"]
    assert spec["egress"][-1] == of_egress[-1]
    assert {"ipBlock": {"cidr": "10.9.0.0/16"}} in spec["egress"][-1]["to"]
    assert "203.0.113.0/24" in spec["egress"][-1]["to"][0]["ipBlock"]["except"]
    ports = [port["port"] for way in spec["egress"][:-1] for port in way["ports"]]
    assert ports == [53, 53]
    to_cache = [way for way in of_egress if way.get("ports") == [{"port": 8080, "protocol": "TCP"}]]
    assert len(to_cache) == 1


def test_what_it_keeps_has_a_bound_or_a_claim() -> None:
    volumes = named(render(*ON), "Deployment", NAME)["spec"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "kept", "emptyDir": {"sizeLimit": "15360Mi"}}]
    manifests = render(*ON, "egress.packages.existingClaim=kept-here")
    spec = named(manifests, "Deployment", NAME)["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["template"]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "kept-here"}


@pytest.mark.parametrize(
    "value",
    [
        r"egress.packages.indexes.pypi\.org=ftp://pypi.org",
        r"egress.packages.indexes.pypi\.org=https://pypi.org/",
        r"egress.packages.indexes.PyPI=https://pypi.org",
        "egress.packages.sizeMegabytes=1",
        "egress.packages.existingClaim=Not A Name",
    ],
)
def test_values_that_break_a_rule_are_refused(value: str) -> None:
    with pytest.raises(ChartError):
        render(*ON, value)
