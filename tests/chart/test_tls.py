"""A gateway with a certificate: clients have HTTPS alone, and the release's own pods another Service."""

from __future__ import annotations

from typing import Any

from tests.support.helm import Manifest, named, render

BRIDGED = ("bridges.e2b.enabled=true",)


def test_clients_have_https_alone() -> None:
    plain, manifests = render(), render("gateway.tlsSecret=certificate")
    assert [port["name"] for port in _service(plain, "rollbox-gateway")["ports"]] == ["http"]
    ports = _service(manifests, "rollbox-gateway")["ports"]
    assert ports == [{"name": "https", "port": 443, "targetPort": "https"}]
    assert (
        _service(render("gateway.tlsSecret=c", "gateway.service.tlsPort=8443"), "rollbox-gateway")["ports"][0]["port"]
        == 8443
    )


def test_the_gateway_reads_the_certificate_from_a_folder_that_is_renewed() -> None:
    assert "tls" not in str(_pod(render())).lower().replace("tls.crt", "")
    pod = _pod(render("gateway.tlsSecret=certificate"))
    (container,) = pod["containers"]
    told = {one["name"]: one["value"] for one in container["env"] if "_TLS_" in one["name"]}
    assert told == {
        "ROLLBOX_GATEWAY_TLS_LISTEN": "0.0.0.0:8443",
        "ROLLBOX_GATEWAY_TLS_CERTIFICATE_FILE": "/etc/rollbox/tls/tls.crt",
        "ROLLBOX_GATEWAY_TLS_KEY_FILE": "/etc/rollbox/tls/tls.key",
    }
    assert {"name": "https", "containerPort": 8443} in container["ports"]
    # A folder of its own: a file that is mounted by itself would not change with the Secret.
    assert {"name": "tls", "mountPath": "/etc/rollbox/tls", "readOnly": True} in container["volumeMounts"]
    assert {"name": "tls", "secret": {"secretName": "certificate"}} in pod["volumes"]


def test_the_releases_own_pods_reach_it_without_tls_and_nobody_else_does() -> None:
    manifests = render(
        "gateway.tlsSecret=certificate", "networkPolicies.metricsFrom[0].podSelector.matchLabels.app=p", *BRIDGED
    )
    inside = _service(manifests, "rollbox-gateway-inside")
    assert (inside["ports"], inside.get("type")) == ([{"name": "http", "port": 80, "targetPort": "http"}], None)
    open_to_all, own, metrics = named(manifests, "NetworkPolicy", "rollbox-gateway")["spec"]["ingress"]
    assert open_to_all == {"ports": [{"port": 8443, "protocol": "TCP"}]}
    assert own["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "rollbox"
    assert [rule["ports"] for rule in (own, metrics)] == [[{"port": 8080, "protocol": "TCP"}]] * 2
    address = "http://rollbox-gateway-inside."
    bridge = named(manifests, "Deployment", "rollbox-bridge-e2b")["spec"]["template"]["spec"]["containers"][0]
    assert bridge["args"][bridge["args"].index("--url") + 1].startswith(address)
    assert str(named(manifests, "Pod", "rollbox-test")).count("rollbox-gateway-inside.") == 2
    assert "http://rollbox-gateway." not in str(manifests)


def _service(manifests: list[Manifest], name: str) -> dict[str, Any]:
    spec: dict[str, Any] = named(manifests, "Service", name)["spec"]
    return spec


def _pod(manifests: list[Manifest]) -> dict[str, Any]:
    spec: dict[str, Any] = named(manifests, "Deployment", "rollbox-gateway")["spec"]["template"]["spec"]
    return spec
