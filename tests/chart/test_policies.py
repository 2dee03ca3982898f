"""Network policies: closed by default, and open for exactly what the four paths need."""

from typing import Any

import pytest

from tests.support.helm import Manifest, matches, named, of_kind, pods, render

SANDBOX = {"app.kubernetes.io/name": "rollbox-sandbox", "rollbox.dev/installation": "rollbox"}


def _component(name: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "rollbox",
        "app.kubernetes.io/instance": "rollbox",
        "app.kubernetes.io/component": name,
    }


def _there(namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": labels},
    }


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render()


def test_the_sandbox_namespace_is_closed_but_for_two_ways(manifests: list[Manifest]) -> None:
    found = {
        one["metadata"]["name"]: one["spec"]
        for one in of_kind(manifests, "NetworkPolicy")
        if one["metadata"].get("namespace") == "rollbox-sandboxes"
    }
    assert found == {
        "rollbox-deny-all": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        "rollbox-agent": {
            "podSelector": {"matchLabels": SANDBOX},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [_there("rollbox", _component("gateway")), _there("rollbox", _component("controlplane"))],
                    "ports": _tcp(7070),
                }
            ],
        },
        "rollbox-ready": {
            "podSelector": {"matchLabels": SANDBOX},
            "policyTypes": ["Egress"],
            "egress": [{"to": [_there("rollbox", _component("controlplane"))], "ports": _tcp(8082)}],
        },
    }


def test_sandboxes_reach_one_port_of_the_platform(manifests: list[Manifest]) -> None:
    open_to_sandboxes = [
        (one["metadata"]["name"], rule["ports"])
        for one in of_kind(manifests, "NetworkPolicy")
        if not one["metadata"].get("namespace")
        for rule in one["spec"].get("ingress", [])
        if any("namespaceSelector" in peer for peer in rule.get("from", []))
    ]
    assert open_to_sandboxes == [("rollbox-controlplane", _tcp(8082))]


def test_the_store_is_for_control_plane_and_operator(manifests: list[Manifest]) -> None:
    spec = named(manifests, "NetworkPolicy", "rollbox-redis")["spec"]
    peers = [{"podSelector": {"matchLabels": _component(name)}} for name in ("controlplane", "operator")]
    assert spec["ingress"] == [{"from": peers, "ports": _tcp(6379)}]
    assert spec["egress"] == []


def test_a_gateway_reaches_control_planes_sidecars_and_resolvers_alone(manifests: list[Manifest]) -> None:
    spec = named(manifests, "NetworkPolicy", "rollbox-gateway")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    resolvers = [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]
    assert spec["egress"] == [
        {"to": [{"podSelector": {"matchLabels": _component("controlplane")}}], "ports": _tcp(8081, 8083)},
        {"to": [_there("rollbox-sandboxes", SANDBOX)], "ports": _tcp(7070)},
        {"ports": resolvers},
    ]


def test_every_platform_pod_that_stays_has_a_policy(manifests: list[Manifest]) -> None:
    selectors = [
        one["spec"]["podSelector"]
        for one in of_kind(manifests, "NetworkPolicy")
        if not one["metadata"].get("namespace")
    ]
    for name, pod in pods(manifests):
        if name.startswith(("Deployment", "StatefulSet")):
            assert any(matches(selector, pod["metadata"]["labels"]) for selector in selectors), name


def test_every_port_of_a_policy_is_one_that_a_pod_has(manifests: list[Manifest]) -> None:
    owned = {
        (port["containerPort"], port.get("protocol", "TCP"))
        for _, pod in pods(manifests)
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    }
    # The sidecar's; the pods of sandboxes are the control plane's to make.
    owned.add((7070, "TCP"))
    # The cluster's resolvers'.
    owned |= {(53, "UDP"), (53, "TCP")}
    for policy in of_kind(manifests, "NetworkPolicy"):
        for rule in [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]:
            for port in rule["ports"]:
                assert (port["port"], port["protocol"]) in owned, policy["metadata"]["name"]


def test_metrics_are_read_by_those_named_only() -> None:
    manifests = render("networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.team=watchers")
    peer = {"namespaceSelector": {"matchLabels": {"team": "watchers"}}}
    for component, port in (("controlplane", 8081), ("dns", 9153)):
        rules = named(manifests, "NetworkPolicy", f"rollbox-{component}")["spec"]["ingress"]
        assert {"from": [peer], "ports": _tcp(port)} in rules
