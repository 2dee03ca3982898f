"""Egress in the chart: absent by default; where enabled, a part of its own with ways of its own, and no other pod's."""

import base64
import ipaddress
import json
from typing import Any

import pytest

from controlplane.cluster.kubernetes.doctor.release_checks.egress import PROBE
from tests.chart.test_images import environment
from tests.support.helm import ChartError, Manifest, named, of_kind, pods, render

ON = ("egress.enabled=true",)


def _pod(manifests: list[Manifest]) -> dict[str, Any]:
    spec: dict[str, Any] = named(manifests, "Deployment", "rollbox-egress")["spec"]["template"]["spec"]
    return spec


def _settings(manifests: list[Manifest]) -> dict[str, str]:
    return {
        one["name"].removeprefix("ROLLBOX_EGRESS_"): one.get("value", "")
        for one in _pod(manifests)["containers"][0]["env"]
    }


def _ways(manifests: list[Manifest]) -> list[dict[str, Any]]:
    ways: list[dict[str, Any]] = named(manifests, "NetworkPolicy", "rollbox-egress")["spec"]["egress"]
    return ways


def _blocks(manifests: list[Manifest]) -> dict[str, list[str]]:
    """The ranges outside, and what is left out of each."""
    found = [peer["ipBlock"] for way in _ways(manifests) for peer in way.get("to", []) if "ipBlock" in peer]
    return {one["cidr"]: one.get("except", []) for one in found}


def test_nothing_of_it_is_there_by_default() -> None:
    manifests = render()
    assert "feed-key" not in str(manifests)
    assert not [one for one in manifests if "rollbox-egress" in one["metadata"]["name"] and one["kind"] != "ConfigMap"]
    assert not [name for name in environment(manifests) if name.startswith("EGRESS")]


def test_the_control_plane_is_told_port_policy_and_presets() -> None:
    told = environment(render(*ON))
    assert (told["EGRESS_PORT"], told["EGRESS_POLICY"]) == ("3128", "offline")
    assert "EGRESS_PRESETS_FILE" not in told
    manifests = render(*ON, "egress.presets.trainer.mode=none", "egress.policy=trainer")
    assert environment(manifests)["EGRESS_POLICY"] == "trainer"
    assert environment(manifests)["EGRESS_PRESETS_FILE"] == "/etc/rollbox/egress/presets.json"
    presets = named(manifests, "ConfigMap", "rollbox-egress-presets")["data"]["presets.json"]
    assert json.loads(presets) == {"trainer": {"mode": "none"}}
    (container,) = named(manifests, "Deployment", "rollbox-controlplane")["spec"]["template"]["spec"]["containers"]
    assert {"name": "egress", "mountPath": "/etc/rollbox/egress", "readOnly": True} in container["volumeMounts"]


def test_control_plane_and_egress_have_the_key_of_the_feed_and_no_other_pod() -> None:
    manifests = render(*ON)
    key = base64.b64decode(named(manifests, "Secret", "rollbox-feed-key")["data"]["key"]).decode()
    assert len(key) == 64
    assert key.isalnum()
    having = [name for name, pod in pods(manifests) if "rollbox-feed-key" in str(pod["spec"])]
    assert sorted(having) == ["Deployment rollbox-controlplane", "Deployment rollbox-egress"]
    assert environment(manifests)["FEED_KEY_FILE"] == _settings(manifests)["FEED_KEY_FILE"] == "/etc/rollbox/feed/key"
    told = [
        named(manifests, "Deployment", f"rollbox-{name}")["spec"]["template"]["metadata"]["annotations"]
        for name in ("controlplane", "egress")
    ]
    assert told[0]["rollbox.dev/feed-key"] == told[1]["rollbox.dev/feed-key"]


def test_a_secret_of_ones_own_is_used_in_its_place() -> None:
    manifests = render(*ON, "existingSecrets.feedKey=mine")
    assert not [one for one in of_kind(manifests, "Secret") if one["metadata"]["name"] == "rollbox-feed-key"]
    (volume,) = _pod(manifests)["volumes"]
    assert volume["secret"]["secretName"] == "mine"


def test_it_is_probed_drains_and_has_no_power() -> None:
    pod = _pod(render(*ON))
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] > 2
    (container,) = pod["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_its_settings_are_the_values() -> None:
    told = _settings(
        render(
            *ON,
            "egress.blockedCidrs[0]=203.0.113.0/24",
            "egress.allowedPrivateCidrs[0]=10.9.0.0/16",
            "egress.dnsServers[0]=10.9.0.53",
            "egress.limits.totalBytes=1000000",
            "egress.limits.idleSeconds=60",
        )
    )
    assert told["FEED_URL"] == "http://rollbox-controlplane.rollbox.svc.cluster.local:8083"
    assert (told["BLOCKED_CIDRS"], told["ALLOWED_PRIVATE_CIDRS"]) == ("203.0.113.0/24", "10.9.0.0/16")
    assert (told["DNS_SERVERS"], told["MAX_TOTAL_BYTES"], told["DRAIN_MS"]) == ("10.9.0.53", "1000000", "2000")
    assert (told["CONNECT_MS"], told["IDLE_MS"]) == ("10000", "60000")


def test_of_the_cluster_it_reaches_feed_sidecars_and_resolvers() -> None:
    inside = [
        (peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component", "sandbox"), way["ports"][0]["port"])
        for way in _ways(render(*ON))
        for peer in way.get("to", [])
        if "podSelector" in peer
    ]
    assert inside == [("controlplane", 8083), ("sandbox", 7070)]
    assert [way["ports"] for way in _ways(render(*ON)) if "to" not in way] == [
        [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    ]


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "127.0.0.1", "203.0.113.9"]
)
def test_its_policy_leaves_private_and_blocked_ranges_out(address: str) -> None:
    blocks = _blocks(render(*ON, "egress.blockedCidrs[0]=203.0.113.0/24", "egress.blockedCidrs[1]=2001:db8::/32"))
    assert any(ipaddress.ip_address(address) in ipaddress.ip_network(one) for one in blocks["0.0.0.0/0"])
    assert blocks["2000::/3"] == ["2001:db8::/32"]
    assert set(blocks) == {"0.0.0.0/0", "2000::/3"}


def test_an_exception_is_one_in_its_policy_too() -> None:
    assert "10.9.0.0/16" in _blocks(render(*ON, "egress.allowedPrivateCidrs[0]=10.9.0.0/16"))


def test_sidecars_and_the_feed_are_open_to_it() -> None:
    manifests = render(*ON)
    for name in ("rollbox-agent", "rollbox-controlplane"):
        (policy,) = [one for one in of_kind(manifests, "NetworkPolicy") if one["metadata"]["name"] == name]
        peers = [
            peer["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for peer in rule.get("from", [])
        ]
        assert "egress" in [one.get("app.kubernetes.io/component") for one in peers], name


def test_metrics_are_for_those_who_may_scrape_and_nothing_else_enters() -> None:
    assert named(render(*ON), "NetworkPolicy", "rollbox-egress")["spec"]["ingress"] == []
    monitored = render(*ON, "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.a=b")
    (way,) = named(monitored, "NetworkPolicy", "rollbox-egress")["spec"]["ingress"]
    assert way["ports"] == [{"port": 8090, "protocol": "TCP"}]


def test_the_host_to_try_is_an_annotation_for_the_doctor() -> None:
    assert "annotations" not in named(render(*ON), "Deployment", "rollbox-egress")["metadata"]
    told = named(render(*ON, "egress.probe=index.test:8443"), "Deployment", "rollbox-egress")["metadata"]["annotations"]
    assert told == {PROBE: "index.test:8443"}


@pytest.mark.parametrize("probe", ["http://index.test", "index.test/path", "*.test", "index.test:port", "INDEX"])
def test_what_is_no_host_and_port_is_refused(probe: str) -> None:
    with pytest.raises(ChartError, match="probe"):
        render(*ON, f"egress.probe={probe}")
